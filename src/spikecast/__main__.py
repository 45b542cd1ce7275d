"""python -m spikecast, which torchrun can start too."""

from spikecast.cli import main

if __name__ == "__main__":
    main()
