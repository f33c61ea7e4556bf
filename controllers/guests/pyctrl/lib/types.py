def _generator():
    yield


class SimpleNamespace:
    def __init__(self, **named):
        for name in named:
            setattr(self, name, named[name])

    def __repr__(self):
        return "namespace(" + ", ".join(f"{name}={value!r}" for name, value in sorted(self.__dict__.items())) + ")"

    def __eq__(self, other):
        return isinstance(other, SimpleNamespace) and self.__dict__ == other.__dict__


class _Class:
    def method(self):
        pass


FunctionType = LambdaType = type(lambda: None)
GeneratorType = CoroutineType = type(_generator())
MethodType = type(_Class().method)
BuiltinFunctionType = BuiltinMethodType = type(len)
NoneType = type(None)
MappingProxyType = dict
