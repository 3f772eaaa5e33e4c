"""`python -m regard` is `regard`; torchrun starts it so."""

from regard.cli import main

if __name__ == "__main__":
    main()
