"""`python -m flatlab` is `flatlab`."""

from .cli import main

if __name__ == "__main__":
    main()
