"""Errors that programs wait for; `expected` has the results."""

import ringleader.torch as hvd


def refused(kind, call, *words):
    """See that a call ends with this error, whose text has the words."""
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"{kind} was not raised: {words}")


def refused_everywhere(kind, call, *words):
    """See that all ranks get the error; they continue."""
    try:
        call()
    except kind as error:
        text = str(error)
    else:
        text = ""
    everybody = hvd.allgather_object(text)
    assert all(all(word in one for word in words) and one for one in everybody), everybody
