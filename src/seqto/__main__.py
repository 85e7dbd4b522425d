"""`python -m seqto`: the command line where no script is on the path."""

from seqto.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
