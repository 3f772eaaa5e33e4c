"""Pictures that explain an idea of the lectures: computed curves and small diagrams."""
