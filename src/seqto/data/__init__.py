"""Where samples come from: pictures, arrays, random numbers, any iterable; and presets."""
