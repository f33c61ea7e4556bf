class AbstractContextManager:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        return None


class ContextDecorator:
    def __call__(self, function):
        def call(*arguments, **named):
            with self:
                return function(*arguments, **named)

        return call


class _Generated(AbstractContextManager):
    def __init__(self, generator):
        self._generator = generator

    def __enter__(self):
        return next(self._generator)

    def __exit__(self, kind, error, traceback):
        if kind is None:
            try:
                next(self._generator)
            except StopIteration:
                return False
            raise RuntimeError("generator didn't stop")
        try:
            self._generator.throw(kind() if error is None else error)
        except StopIteration:
            return True
        except BaseException as raised:
            if raised is error:
                return False
            raise
        raise RuntimeError("generator didn't stop after throw()")


def contextmanager(function):
    return lambda *arguments, **named: _Generated(function(*arguments, **named))


class nullcontext(AbstractContextManager):
    def __init__(self, enter_result=None):
        self.enter_result = enter_result

    def __enter__(self):
        return self.enter_result


class closing(AbstractContextManager):
    def __init__(self, thing):
        self.thing = thing

    def __enter__(self):
        return self.thing

    def __exit__(self, kind, error, traceback):
        self.thing.close()


class suppress(AbstractContextManager):
    def __init__(self, *kinds):
        self._kinds = kinds

    def __enter__(self):
        pass

    def __exit__(self, kind, error, traceback):
        return kind is not None and issubclass(kind, self._kinds)


class ExitStack(AbstractContextManager):
    def __init__(self):
        self._exits = []

    def enter_context(self, manager):
        entered = manager.__enter__()
        self._exits.append(manager.__exit__)
        return entered

    def push(self, exit):
        self._exits.append(exit.__exit__ if hasattr(exit, "__exit__") else exit)
        return exit

    def callback(self, function, *arguments, **named):
        self._exits.append(lambda *error: function(*arguments, **named) and False)
        return function

    def pop_all(self):
        other = ExitStack()
        other._exits, self._exits = self._exits, []
        return other

    def close(self):
        self.__exit__(None, None, None)

    def __exit__(self, kind, error, traceback):
        was_raised = kind is not None
        raised = None
        while self._exits:
            try:
                if self._exits.pop()(kind, error, traceback):
                    kind = error = traceback = raised = None
            except BaseException as other:
                kind, error, traceback, raised = type(other), other, None, other
        if raised is not None:
            raise raised
        return was_raised and kind is None
