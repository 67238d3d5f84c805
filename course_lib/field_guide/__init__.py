"""Chapter 11, a field guide: the attention of today's models, each as a difference from one base layer."""
from course_lib.field_guide.base import Attention, Recipe
from course_lib.field_guide.cache import Cache
from course_lib.field_guide.families import FAMILIES
from course_lib.field_guide.describe import Description, describe
from course_lib.field_guide.ideas import IDEAS, ideas_of
from course_lib.field_guide.reading import Reading, layer_recipes
from course_lib.field_guide.recorded import WHOLE, recorded, run_layers
from course_lib.field_guide.rotary import Rotary, rotate
from course_lib.field_guide.show import (equality_table, ideas_tree, largest_difference, layers_in_order,
                                         models_by_idea, published_models, show_costs, show_family)
from course_lib.field_guide.weights import copy_weights, made_up, made_up_weights, outline
from course_lib.field_guide.state import recurrence
from course_lib.field_guide.whole import BadCheckpoint, Model, NotANumber, open_model
