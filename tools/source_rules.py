"""The rules of the source tree that a compiler does not enforce, each a function from a file to findings.

A finding is (line, message). tools/check lists the files, applies the rules and prints; tools/check_selftest breaks each rule
once and expects to hear of it.
"""
import re

WARN_FILE_LINES, MAX_FILE_LINES, WARN_FUNCTION_LINES = 350, 600, 60
ENVIRONMENT_LAYERS = {"launch", "cli"}
C10D_LAYER = "comm"
FAMILY_LIST = "src/orthant/models/families.inc"
# Families belong to models; tokenizers and data of some are known by a family's name.
FAMILY_FOLDERS = ("src/orthant/models/", "src/orthant/text/", "src/orthant/data/")
MAX_FILES_WITH_FAMILIES = 8

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'                                    # comments
    r'|R"(?P<delimiter>[^()\s\\]{0,16})\(.*?\)(?P=delimiter)"'  # raw strings
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
TORCH = re.compile(r'(torch|ATen|c10|c10d|caffe2)/')
C10D = re.compile(r'torch/csrc/distributed/|c10d/|gloo/|nccl\.h')
MACHINE_PATH = re.compile(r'(?<![\w.~})\]-])/(?:home|root|work)/')
LEFT_BEHIND = re.compile(r"(\.(orig|rej|bak|sw[a-p])|~|_(BACKUP|BASE|LOCAL|REMOTE)_\d+\.\w+)$|(^|/)(\.#.*|#[^/]*#)$")
LONGEST_PAGE_LINE = 120
UNBREAKABLE = re.compile(r"\s*(\||\(?`[^`]*`[).,;]*$)")
VAGUE_NAME = re.compile(r'(utils?|common|helpers?|misc)|.*_(utils?|helpers?)')
REASONED_TODO = re.compile(r'TODO\([^)\s][^)]*\): *\S')


class Layers:
    """layers.txt: which layer may include which, and which are pure."""

    def __init__(self, text):
        self.allowed, self.pure, self.findings = {}, set(), []
        for number, line in enumerate(text.splitlines(), 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            match = re.fullmatch(r'([\w/*]+)\s+(pure|torch)\s*:\s*([\w/*\s]*)', line)
            if not match:
                self.findings.append((number, "expected `layer pure|torch: layers it may include`"))
                continue
            name, kind, allowed = match[1], match[2], match[3].split()
            for other in allowed:
                if other not in self.allowed:
                    self.findings.append((number, f"{name} may include only layers above it: {other} is not above"))
                elif kind == "pure" and other not in self.pure:
                    self.findings.append((number, f"{name} is pure and may not include {other}, which sees torch"))
            self.allowed[name] = {name, *allowed}
            if kind == "pure":
                self.pure.add(name)

    def of(self, path):
        """The layer of a path below src/orthant (parallel/data/flat.h -> parallel/data); None when no layer holds it.

        A layer x/* has the folders of x, but for their rule.cpp, which is of x.
        """
        *folders, name = path.split("/")
        while folders:
            many = "/".join([*folders[:-1], "*"])
            if many in self.allowed and name != "rule.cpp":
                return many
            if "/".join(folders) in self.allowed:
                return "/".join(folders)
            folders.pop()
        return None


class Source:
    """A C++ file in three views of equal length and lines: as it is, without comments, without comments and strings."""

    def __init__(self, path, text, layers):
        self.path, self.text = path, text
        self.uncommented = TOKEN.sub(lambda m: blank(m[0]) if m[0][0] == "/" else m[0], text)
        self.code = TOKEN.sub(lambda m: blank(m[0]), text)
        self.inside = path[len("src/orthant/"):] if path.startswith("src/orthant/") else None
        self.layer = layers.of(self.inside) if self.inside else None
        self.is_header = path.endswith((".h", ".hpp", ".cuh"))

    def line(self, position):
        return self.text.count("\n", 0, position) + 1

    def matches(self, pattern, view):
        return [(self.line(match.start()), match) for match in re.finditer(pattern, view)]

    def includes(self):
        return [(self.line(match.start(1)), match[1]) for match in INCLUDE.finditer(self.uncommented)]


def blank(text):
    return re.sub(r'[^\n]', " ", text)


def include_direction(source, layers):
    if source.inside is None or "/" not in source.inside:
        return  # tests and examples see everything, and so do headers that belong to no layer: src/orthant/*.h
    if source.layer is None:
        yield 1, f"folder {source.inside.rsplit('/', 1)[0]} is not a layer of layers.txt"
        return
    for line, include in source.includes():
        if include.startswith(("../", "./")) or "/../" in include:
            yield line, f'include "{include}" by its full name: "orthant/<layer>/<file>"'
        if not include.startswith("orthant/"):
            continue
        target = layers.of(include[len("orthant/"):])
        if target is None:
            yield line, f"{include} is in no layer of layers.txt"
        elif target not in layers.allowed[source.layer]:
            yield line, f"layer {source.layer} may not include layer {target} (layers.txt)"


def torch_includes(source, layers):
    if source.layer is None:
        return
    for line, include in source.includes():
        if source.layer in layers.pure and (TORCH.match(include) or C10D.match(include)):
            yield line, f"layer {source.layer} is pure and may not include {include}"
        elif source.layer != C10D_LAYER and C10D.match(include):
            yield line, f"only layer {C10D_LAYER} may include {include}"


def environment_reads(source, layers):
    if source.inside is None or source.layer in ENVIRONMENT_LAYERS:
        return
    for line, match in source.matches(r'\b(?:secure_)?getenv\b|\benviron\b', source.code):
        yield line, f"{match[0]}: only layers {' and '.join(sorted(ENVIRONMENT_LAYERS))} read the environment"


def tests_that_do_not_run(source, layers):
    for line, match in source.matches(r'\bGTEST_SKIP\b|\bDISABLED_\w+', source.code):
        yield line, f"{match[0]}: leave out by label what cannot run (see tools/run_tests), or remove it"


def header_shape(source, layers):
    if not source.is_header:
        return
    if not source.text.startswith(("//", "/*")):
        yield 1, "a header starts with a comment: what it is and why it exists"
    if not re.search(r'^#pragma once$', source.text, re.MULTILINE):
        yield 1, "no #pragma once"
    for line, _ in source.matches(r'\busing\s+namespace\b', source.code):
        yield line, "no `using namespace` in a header"


def reasonless_todos(source, layers):
    for number, text in enumerate(source.text.splitlines(), 1):
        word = re.search(r'\b(TODO|FIXME|XXX)\b', text)
        if word and not REASONED_TODO.match(text, word.start()):
            yield number, f"{word[0]} without reason and exit: write TODO(until when): why"


def file_length(source, layers):
    lines = source.text.count("\n")
    if lines > MAX_FILE_LINES:
        yield MAX_FILE_LINES + 1, f"{lines} lines: split before {MAX_FILE_LINES}"


def family_names(text):
    """A pattern of the names in models/families.inc, however they are written: encoder_lm, EncoderLm, encoder-lm."""
    names = re.findall(r'^ORTHANT_FAMILY\((\w+)\)', text, re.MULTILINE)
    return re.compile("|".join(name.replace("_", "[_-]?") for name in names), re.IGNORECASE)


def names_a_family(path, text, names):
    """Whether a file of the program names a family of models, comments aside, where only the family's folder should."""
    if not path.startswith("src/orthant/") or path.startswith(FAMILY_FOLDERS):
        return False
    return bool(names.search(TOKEN.sub(lambda m: "" if m[0][0] == "/" else m[0], text)))


def families_outside(paths):
    """Findings of the files that name a family: some must, such as the text of the default run, but few."""
    if len(paths) > MAX_FILES_WITH_FAMILIES:
        yield (1, f"{len(paths)} files outside models, text and data name a family, {MAX_FILES_WITH_FAMILIES} may: ask "
                  f"models/family.h instead; they are {', '.join(paths)}")


CPP_RULES = [include_direction, torch_includes, environment_reads, tests_that_do_not_run, header_shape, reasonless_todos,
             file_length]


def long_page_lines(path, text):
    """Lines of pages that could be shorter. But for README.md, a row of a table, a block of output and a long command stay."""
    in_block = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_block = not in_block
        stays = path != "README.md" and (in_block or UNBREAKABLE.match(line))
        if len(line) > LONGEST_PAGE_LINE and not stays:
            yield number, f"{len(line)} characters: wrap pages at {LONGEST_PAGE_LINE}"


def any_file(path, text):
    """The rules for every text file."""
    for number, line in enumerate(text.splitlines(), 1):
        match = MACHINE_PATH.search(line)
        if match:
            yield number, f"path of one machine: {match[0]}"
    if path.endswith(".md"):
        yield from long_page_lines(path, text)


def any_name(path):
    """The rules for the name of every file, text or not. Those below cmake/ may follow the libraries they stand in for."""
    if LEFT_BEHIND.search(path):
        yield 1, f"{path} was left behind by an editor or a merge: remove it"
    for name in [] if path.startswith("cmake/") else path.split("/"):
        if VAGUE_NAME.fullmatch(name.split(".")[0].lower()):
            yield 1, f"{name} says nothing about what it holds: name it after its main type or task"


def warnings(source):
    """Lengths worth a thought; no failure."""
    lines = source.text.count("\n")
    if WARN_FILE_LINES < lines <= MAX_FILE_LINES:
        yield WARN_FILE_LINES + 1, f"{lines} lines: seldom over {WARN_FILE_LINES}"
    for line, length in functions(source):
        if length > WARN_FUNCTION_LINES:
            yield line, f"function of {length} lines: should fit a screen ({WARN_FUNCTION_LINES})"


def functions(source):
    """(line, lines) of each function body: an outermost brace pair after a parenthesis, by a reading of braces alone."""
    code = re.sub(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', lambda m: blank(m[0]), source.code, flags=re.MULTILINE)
    start, depth, head = None, 0, 0  # depth: braces open inside the function that began at `start`
    for match in re.finditer(r'[{};]', code):
        if match[0] == "{":
            before = re.sub(r'\btemplate\s*<[^{;]*?>', "", code[head:match.start()])
            is_scope = re.search(r'\b(namespace|class|struct|union|enum)\b', before) or "(" not in before
            if start is not None:
                depth += 1
            elif not is_scope:
                start, depth = match.start(), 1
        elif match[0] == "}" and start is not None:
            depth -= 1
            if depth == 0:
                first = source.line(start)
                yield first, source.line(match.start()) - first + 1
                start = None
        head = match.end()
