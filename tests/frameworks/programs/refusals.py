"""Errors that programs wait for."""


def raises(kind, words, call, *arguments, **more):
    """See that a call ends with this error, whose text has the words; return the text."""
    try:
        call(*arguments, **more)
    except kind as error:
        assert words in str(error), error
        return str(error)
    raise AssertionError(words)
