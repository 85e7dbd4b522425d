"""Exit codes of the commands; 0: done."""

BAD_INPUT = 2
GATE = 3  # no trial meets the goal, a checked model misses a bound, or a comparison got worse
SOME_FAILED = 4  # of several models
INTERRUPTED = 130
