"""Pipelines that users write in YAML.

checks    options checked before Spark starts
describe  a recipe explained without running it
load      a YAML file into a checked recipe
model     sources, steps, sinks, trigger
parse     YAML into a recipe
progress  a stream's progress in a few numbers
run       a recipe, run
sqlnames  view names in a query
views     sources and steps as views
yamltree  YAML with line numbers
"""
