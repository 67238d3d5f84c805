"""What an instructor uses: handing out, marking, walls, nbgrader."""
