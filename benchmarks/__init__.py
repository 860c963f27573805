"""What `make bench` measures: each figure against what it is compared to, in alternating runs."""
