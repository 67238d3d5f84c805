"""A student's code behind walls: the process that runs it, and the checks that the walls hold."""
