"""Checks component functions without importing them, and reads their docstrings."""

import abc
import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from torchx._startup.dataclass import light_dataclass
from torchx.specs._docstrings import get_fn_docstring as get_fn_docstring
from torchx.util.io import read_conf_file

if TYPE_CHECKING:
    from torchx.specs._component_parser import (
        TorchXArgumentHelpFormatter as TorchXArgumentHelpFormatter,
    )


def __getattr__(name: str) -> Any:  # on first use: argparse is not needed to describe jobs
    if name == "TorchXArgumentHelpFormatter":
        from torchx.specs._component_parser import TorchXArgumentHelpFormatter

        return TorchXArgumentHelpFormatter
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


@light_dataclass
class LinterMessage:
    """A problem of a component, and its location."""

    name: str
    description: str
    line: int
    char: int
    severity: str = "error"


class ComponentFunctionValidator(abc.ABC):
    """A rule that component functions must follow."""

    @abc.abstractmethod
    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        """Returns the violations of the rule."""

    def _gen_linter_message(self, description: str, lineno: int) -> LinterMessage:
        return LinterMessage("TorchxFunctionValidator", description, lineno, 0)


def _is_name(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Name)


def _subscript_name(expr: ast.expr) -> str | None:
    """Returns ``X`` of ``X[...]`` and of ``typing.X[...]``; ``None`` for anything else."""
    if not isinstance(expr, ast.Subscript):
        return None
    if isinstance(expr.value, ast.Name):
        return expr.value.id
    return expr.value.attr if isinstance(expr.value, ast.Attribute) else None


def _parameters(expr: ast.expr) -> list[ast.expr]:
    assert isinstance(expr, ast.Subscript)
    inner = expr.slice
    return list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]


def is_primitive(expr: ast.expr) -> bool:
    """Returns True if the annotation is a bare name."""
    return _is_name(expr)


def get_generic_type(expr: ast.expr) -> str | None:
    """Returns the container's name of a generic annotation; ``None`` if it is not generic."""
    return _subscript_name(expr)


def get_optional_type(expr: ast.expr) -> ast.expr | None:
    """Returns ``T`` of ``Optional[T]``, ``T | None`` or ``None | T``; ``None`` for others."""
    if _subscript_name(expr) == "Optional":
        return _parameters(expr)[0]
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.BitOr):
        for one, other in ((expr.left, expr.right), (expr.right, expr.left)):
            if isinstance(other, ast.Constant) and other.value is None:
                return one
    return None


class ArgTypeValidator(ComponentFunctionValidator):
    """Rule: every parameter has a type that can be parsed from a command line."""

    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        """Returns one message for each parameter that breaks the rule."""
        args = app_specs_func_def.args
        checked = [*args.posonlyargs, *args.args]
        if args.vararg:
            checked.append(args.vararg)
        checked += args.kwonlyargs
        messages = []
        for arg in checked:
            problem = self._problem(arg)
            if problem:
                messages.append(self._message(problem, arg, app_specs_func_def.name))
        if args.kwarg:
            problem = "Unsupported '**kwargs' parameter; use a dict or name the parameters"
            messages.append(self._message(problem, args.kwarg, app_specs_func_def.name))
        return messages

    def _message(self, problem: str, arg: ast.arg, function: str) -> LinterMessage:
        text = f"{problem} for argument {ast.unparse(arg)!r} in function {function!r}"
        return self._gen_linter_message(text, arg.lineno)

    def _problem(self, arg: ast.arg) -> str | None:
        expr = arg.annotation
        if expr is None:
            return "Missing type annotation"
        if _subscript_name(expr) == "Annotated":
            expr = _parameters(expr)[0]
        expr = get_optional_type(expr) or expr
        if _is_name(expr):
            return None
        container = _subscript_name(expr)
        if container is None:
            return f"Unsupported argument type {ast.unparse(expr)!r}"
        return _container_problem(container, expr)


def _container_problem(container: str, expr: ast.expr) -> str | None:
    parameters = _parameters(expr)
    source = ast.unparse(expr)
    if container in ("Dict", "dict"):
        if len(parameters) != 2:
            return (
                f"Malformed dict type {source!r}, expected exactly two type parameters (dict[K, V])"
            )
        for what, part in zip(("key", "value"), parameters, strict=True):
            if not _is_name(part):
                return f"Non-primitive {what} type {ast.unparse(part)!r}"
        return None
    if container in ("List", "list"):
        bad = [p for p in parameters if not _is_name(p)]
        return f"Non-primitive element type {ast.unparse(bad[0])!r}" if bad else None
    if container in ("Tuple", "tuple"):
        if len(parameters) < 2:
            return (
                f"Unsupported tuple type {source!r}: single-element tuples are valid typing but not"
                " supported for components; expected element types (tuple[T1, T2, ...])"
            )
        bad = [p for p in parameters if not _is_name(p)]
        return f"Non-primitive element type '{ast.unparse(bad[0])!r}'" if bad else None
    return f"Unsupported container type {container!r}"


class ReturnTypeValidator(ComponentFunctionValidator):
    """Rule: the function is annotated to return the given type."""

    def __init__(self, supported_return_type: str) -> None:
        self._supported_return_type = supported_return_type

    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        """Returns at most one message."""
        name = self._return_name(app_specs_func_def.returns)
        if name == self._supported_return_type:
            return []
        if not name:
            text = (
                f"Function: {app_specs_func_def.name} missing return annotation or has unknown"
                f" annotations. Supported return annotation: {self._supported_return_type}"
            )
        else:
            text = (
                f"Function: {app_specs_func_def.name} has incorrect return annotation,"
                f" supported annotation: {self._supported_return_type}"
            )
        return [self._gen_linter_message(text, app_specs_func_def.lineno)]

    def _return_name(self, expr: ast.expr | None) -> str | None:
        match expr:
            case ast.Name(id=name):
                return name
            case ast.Attribute(attr=name):
                return name
            case ast.Constant(value=str(name)):
                return name
        return None


class ComponentFnVisitor(ast.NodeVisitor):
    """Finds a component by name among the definitions of a module, and checks it."""

    def __init__(
        self, component_function_name: str, validators: list[ComponentFunctionValidator]
    ) -> None:
        self.validators = validators
        self.linter_errors: list[LinterMessage] = []
        self.component_function_name = component_function_name
        self.visited_function = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Checks a function of that name; nested functions are ignored."""
        if node.name != self.component_function_name:
            return
        self.visited_function = True
        for validator in self.validators:
            self.linter_errors += validator.validate(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Ignores ``async`` functions, which are not components."""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Checks the return annotation of a class component's ``build``."""
        if node.name != self.component_function_name:
            return
        self.visited_function = True
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "build":
                for validator in self.validators:
                    if isinstance(validator, ReturnTypeValidator):
                        self.linter_errors += validator.validate(item)


def validate(
    path: str,
    component_function: str,
    validators: list[ComponentFunctionValidator] | None = None,
) -> list[LinterMessage]:
    """Checks a component of a file without importing it.

    Args:
        path: the file, on disk or packaged.
        validators: rules to check; ``None`` for the default ones, ``[]`` for none.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    if validators is None:
        validators = [ArgTypeValidator(), ReturnTypeValidator("AppDef")]
    try:
        tree = _parse(read_conf_file(path))
    except SyntaxError as err:
        return [LinterMessage("TorchXValidator", err.msg, err.lineno or 0, err.offset or 0)]
    visitor = ComponentFnVisitor(component_function, validators)
    visitor.visit(tree)
    if not visitor.visited_function:
        text = f"Function {component_function} not found"
        return [LinterMessage("TorchXValidator", text, 0, 0)]
    return visitor.linter_errors


@lru_cache(maxsize=1)  # the components of a file come one after the other
def _parse(source: str) -> ast.Module:
    return ast.parse(source)


# names of release 0.7
TorchxFunctionValidator = ComponentFunctionValidator
TorchxFunctionArgsValidator = ArgTypeValidator
TorchxReturnValidator = ReturnTypeValidator
TorchFunctionVisitor = ComponentFnVisitor
