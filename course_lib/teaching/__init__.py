"""What an instructor uses. A command is a file: grade, handout, solve, nbgrader_export; exam/ has its own.

`grade`, room by room: hand_ins/ are read, each answer runs in confined/, marks/ judges and keeps, reports/
writes, copies/ finds code that is alike. handouts/ is for `handout`."""
