"""CUDA C++ as text: its tokens, its outline, its statements, and a compiler's words about it."""
