"""The frame of the explorables: controls, the drawing kit, and what shows them."""
from course_lib.explore.frame.controls import Choice, Point, Slider, Text, amount
from course_lib.explore.frame.explorable import Explorable
from laptop_cuda.pictures.svg import Canvas

__all__ = ["Canvas", "Choice", "Explorable", "Point", "Slider", "Text", "amount"]
