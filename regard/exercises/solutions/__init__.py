"""The solutions of the exercises, one file each: `regard exercise solution NAME` prints them, tests check them."""
