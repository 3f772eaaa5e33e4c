"""C sources for decoding on a CPU, and the code that compiles and loads them."""
