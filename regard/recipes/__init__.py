"""The tables of a recipe, and the recipes that come with regard, in a folder for each data set."""
