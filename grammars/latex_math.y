// LaTeX in math mode, without the dollar signs around it: what KaTeX, MathJax and amsmath have in common and people write.
// Letters, digits, operators and any Unicode letter; groups, sub- and superscripts, primes; the commands listed here; \left \right with
// delimiters on both sides; environments of matrices, cases and aligned lines; \text with plain text.
// Left out: definitions (\newcommand), $ in texts, macros with arguments of other kinds, \cancel, \ce and other packages, colours,
// arrays with vertical lines, numbering (\tag, \label), comments, \limits and infix \over.

%start formula
%option contextual
%%

SKIP: "/[ \t\r\n]+/" ;

// An argument or a script is one character; elsewhere characters are read in runs, for speed.
CHARACTER: "/[A-Za-z0-9+\-*\/=<>()\[\]|.,:;!?@`\x22\u00b1\u00d7\u00f7\u0391-\u03a9\u03b1-\u03c9\u2190-\u2193\u2200\u2203\u2208\u2211\u221a\u221e\u222b\u2260\u2264\u2265]/" ;
RUN: "/[A-Za-z0-9+\-*\/=<>()\[\]|.,:;!?@`\x22\u00b1\u00d7\u00f7\u0391-\u03a9\u03b1-\u03c9\u2190-\u2193\u2200\u2203\u2208\u2211\u221a\u221e\u222b\u2260\u2264\u2265]+/" ;

PRIMES: "/'+/" ;

// Symbols: a LETTER may be the argument of a command, or a script.
LETTER
    : "/\\(alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|vartheta|iota|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|upsilon|phi|varphi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega)/"
    | "/\\(infty|ast|star|circ|bullet|prime|dagger|top|bot|perp|parallel|ell|hbar|pm|mp|cdot|times|oplus|otimes|partial|nabla|emptyset|varnothing|[{}%$#&_|])/"
    ;

SYMBOL
    : "/\\(cdots|ldots|vdots|ddots|dots|div|ominus|odot|cup|cap|setminus|wedge|vee|land|lor|lnot|neg|mid|colon|bmod)/"
    | "/\\(leq|le|geq|ge|neq|ne|equiv|sim|simeq|approx|cong|propto|ll|gg|prec|succ|subset|supset|subseteq|supseteq|in|ni|notin|vdash|models|mapsto|to|gets|iff|implies|leftarrow|rightarrow|leftrightarrow|Leftarrow|Rightarrow|Leftrightarrow|longrightarrow|uparrow|downarrow)/"
    | "/\\(forall|exists|nexists|Re|Im|aleph|angle|triangle|therefore|because|lbrace|rbrace|langle|rangle|lvert|rvert|lVert|rVert|lfloor|rfloor|lceil|rceil|vert|Vert)/"
    | "/\\(sum|prod|coprod|int|iint|iiint|oint|bigcup|bigcap|bigoplus|bigotimes|lim|limsup|liminf|sup|inf|max|min|arg|det|dim|exp|ker|ln|lg|log|gcd|deg|Pr|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh)/"
    ;

SPACE: "/\\(quad|qquad|displaystyle|textstyle|scriptstyle|[,:;! ])/" ;

ROOT: "/\\sqrt[ \t]*(\[[0-9A-Za-z+\-]+\])?/" ;

// Commands with one argument, and with two.
FONT: "/\\(mathbf|mathrm|mathit|mathsf|mathtt|mathcal|mathbb|mathfrak|mathscr|boldsymbol)/" ;

ACCENT: "/\\(hat|widehat|tilde|widetilde|bar|overline|underline|vec|dot|ddot|acute|grave|breve|check|mathring|overrightarrow|overleftarrow|overbrace|underbrace|boxed|phantom|operatorname|pmod)/" ;

FRACTION: "/\\(frac|dfrac|tfrac|cfrac|binom|dbinom|tbinom|stackrel|overset|underset)/" ;

TEXT: "/\\(text|textbf|textit|textrm)[ \t]*\{([^{}\\$%#&_^~\r\n]|\\[ %&_#$]|\{[^{}\\$%#&_^~\r\n]*\})*\}/" ;

// With their delimiters.
LEFT: "/\\left[ \t]*([()\[\].|\/<>]|\\(lbrace|rbrace|langle|rangle|lvert|rvert|lVert|rVert|lfloor|rfloor|lceil|rceil|vert|Vert|uparrow|downarrow|backslash|[{}|]))/" ;
MIDDLE: "/\\middle[ \t]*([()\[\].|\/<>]|\\(lbrace|rbrace|langle|rangle|lvert|rvert|lVert|rVert|lfloor|rfloor|lceil|rceil|vert|Vert|uparrow|downarrow|backslash|[{}|]))/" ;
RIGHT: "/\\right[ \t]*([()\[\].|\/<>]|\\(lbrace|rbrace|langle|rangle|lvert|rvert|lVert|rVert|lfloor|rfloor|lceil|rceil|vert|Vert|uparrow|downarrow|backslash|[{}|]))/" ;
BIG: "/\\([bB]ig|[bB]igg)[lrm]?[ \t]*([()\[\].|\/<>]|\\(lbrace|rbrace|langle|rangle|lvert|rvert|lVert|rVert|lfloor|rfloor|lceil|rceil|vert|Vert|uparrow|downarrow|backslash|[{}|]))/" ;

// No letter follows the name of a command.
NEVER: "/\\[A-Za-z]+/" ;

ARRAY: "/\\begin\{array\}[ \t]*\{[lcr ]*[lcr][lcr ]*\}/" ;

NEXT_LINE: "/\\\\[ \t\r\n]*(\[-?[0-9]+(\.[0-9]+)?(em|ex|pt|mm)\])?/" ;

formula
    : terms
    | "/\\begin\{align\}/" rows "/\\end\{align\}/"
    | "/\\begin\{align\*\}/" rows "/\\end\{align\*\}/"
    ;

terms
    : %empty
    | terms term
    ;

term
    : SPACE
    | atom
    | atom PRIMES
    | atom scripts
    | atom PRIMES "_" script
    | atom "_" script PRIMES
    ;

scripts
    : "^" script
    | "_" script
    | "^" script "_" script
    | "_" script "^" script
    ;

script
    : argument
    | FONT group
    | TEXT
    ;

atom
    : RUN
    | LETTER
    | group
    | SYMBOL
    | TEXT
    | ACCENT argument
    | FRACTION argument argument
    | ROOT group
    | LEFT middles RIGHT
    | BIG
    | FONT group
    | matrix
    ;

argument
    : CHARACTER
    | LETTER
    | group
    ;

group: "{" terms "}" ;

middles
    : terms
    | middles MIDDLE terms
    ;

matrix
    : "/\\begin\{matrix\}/" rows "/\\end\{matrix\}/"
    | "/\\begin\{pmatrix\}/" rows "/\\end\{pmatrix\}/"
    | "/\\begin\{bmatrix\}/" rows "/\\end\{bmatrix\}/"
    | "/\\begin\{Bmatrix\}/" rows "/\\end\{Bmatrix\}/"
    | "/\\begin\{vmatrix\}/" rows "/\\end\{vmatrix\}/"
    | "/\\begin\{Vmatrix\}/" rows "/\\end\{Vmatrix\}/"
    | "/\\begin\{smallmatrix\}/" rows "/\\end\{smallmatrix\}/"
    | "/\\begin\{cases\}/" cases "/\\end\{cases\}/"
    | "/\\begin\{aligned\}/" rows "/\\end\{aligned\}/"
    | "/\\begin\{gathered\}/" lines "/\\end\{gathered\}/"
    | "/\\begin\{split\}/" cases "/\\end\{split\}/"
    | ARRAY rows "/\\end\{array\}/"
    ;

rows
    : row
    | rows NEXT_LINE row
    ;

row
    : terms
    | row "&" terms
    ;

lines
    : terms
    | lines NEXT_LINE terms
    ;

cases
    : case
    | cases NEXT_LINE case
    ;

case
    : terms
    | terms "&" terms
    ;
