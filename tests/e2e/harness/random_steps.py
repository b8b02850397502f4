"""Steps of a model in random order."""


def take_random_steps(run, steps, count, last=()):
    """Calls `count` methods of `run`, chosen by its `dice`, and then those in `last`. `steps` has pairs of
    a weight and a method's name. A failure names the methods that were called."""
    weights, names = zip(*steps, strict=True)
    done = []
    try:
        for name in [*run.dice.choices(names, weights, k=count), *last]:
            done.append(name)
            getattr(run, name)()
    except AssertionError as error:
        raise AssertionError(f"after {done}") from error
