"""A student's source on the cases: plain data in and out, so that another process can do it. A marking
process has these files and no others of the course."""
