// HTML: documents and fragments, of the elements listed here. Every element has its closing tag, unless it has none by nature;
// paragraphs hold no blocks, links hold no links, lists hold items, tables hold rows. The rules nest as the standard has it, so that
// no parser corrects the tree.
// Left out: upper-case tags, attributes without quotes, & in values other than as &amp; and its like, character references by other
// names than those of TEXT, forms, scripts with "<" in them, SVG, MathML, <p> and <li> without closing tags.
// That no attribute is given twice is not for a grammar to say; nor which attributes and values an element has.

%start text
%option contextual
%%

SKIP
    : "/[ \t\r\n]+/"
    | "/<!--([^>\x00-\x08\x0b-\x1f\x7f-\x9f-]|-[^>\x00-\x08\x0b-\x1f\x7f-\x9f-])([^\x00-\x08\x0b-\x1f\x7f-\x9f-]|-[^\x00-\x08\x0b-\x1f\x7f-\x9f-])*-->/"
    ;

TEXT: "/([^<& \t\r\n\x00-\x1f\x7f-\x9f]|&(amp|lt|gt|quot|nbsp|copy|hellip|mdash|ndash|rarr|larr|times|middot|bull|laquo|raquo|euro|reg|trade);|&#(3[2-9]|[4-9][0-9]|1[01][0-9]|12[0-6]|1[6-9][0-9]|[2-9][0-9]{2}|[1-9][0-9]{3});)+/" ;

// Attributes with a value in quotes, or without value.
ATTRIBUTE
    : '/[ \t\r\n]+[a-zA-Z_:@][a-zA-Z0-9_:.\-]*(="([^"&<\x00-\x08\x0b-\x1f\x7f-\x9f]|&(amp|lt|gt|quot|nbsp);|&#(34|39|[1-9][0-9]{3});)*")?/'
    | "/[ \t\r\n]+[a-zA-Z_:@][a-zA-Z0-9_:.\-]*='([^'&<\x00-\x08\x0b-\x1f\x7f-\x9f]|&(amp|lt|gt|quot|nbsp);|&#(34|39|[1-9][0-9]{3});)*'/"
    ;

DOCTYPE: "/<![dD][oO][cC][tT][yY][pP][eE] html>/" ;

// The inside of script and style.
RAW: "/[^< \t\r\n\x00-\x1f\x7f-\x9f]([^<\x00-\x08\x0b-\x1f\x7f-\x9f])*/" ;

text
    : DOCTYPE "<html" attributes ">" head body "</html>"
    | flows
    ;

attributes
    : %empty
    | attributes ATTRIBUTE
    ;

head: "<head" attributes ">" metas "</head>" ;

metas
    : %empty
    | metas "<title" attributes ">" words "</title>"
    | metas "<meta" attributes end
    | metas "<link" attributes end
    | metas "<script" attributes ">" raw "</script>"
    | metas "<style" attributes ">" raw "</style>"
    ;

end: ">" | "/>" ;

raw
    : %empty
    | RAW
    ;

words
    : %empty
    | words TEXT
    ;

body: "<body" attributes ">" flows "</body>" ;

flows
    : %empty
    | flows flow
    ;

flow
    : phrase
    | "<p" attributes ">" phrases "</p>"
    | "<h1" attributes ">" phrases "</h1>"
    | "<h2" attributes ">" phrases "</h2>"
    | "<h3" attributes ">" phrases "</h3>"
    | "<h4" attributes ">" phrases "</h4>"
    | "<h5" attributes ">" phrases "</h5>"
    | "<h6" attributes ">" phrases "</h6>"
    | "<address" attributes ">" flows "</address>"
    | "<article" attributes ">" flows "</article>"
    | "<aside" attributes ">" flows "</aside>"
    | "<blockquote" attributes ">" flows "</blockquote>"
    | "<div" attributes ">" flows "</div>"
    | "<footer" attributes ">" flows "</footer>"
    | "<header" attributes ">" flows "</header>"
    | "<main" attributes ">" flows "</main>"
    | "<nav" attributes ">" flows "</nav>"
    | "<section" attributes ">" flows "</section>"
    | "<pre" attributes ">" phrases "</pre>"
    | "<hr" attributes end
    | "<ul" attributes ">" items "</ul>"
    | "<ol" attributes ">" items "</ol>"
    | "<dl" attributes ">" terms "</dl>"
    | "<figure" attributes ">" flows "</figure>"
    | "<figure" attributes ">" flows "<figcaption" attributes ">" flows "</figcaption>" "</figure>"
    | "<details" attributes ">" "<summary" attributes ">" phrases "</summary>" flows "</details>"
    | "<table" attributes ">" caption rows "</table>"
    | "<table" attributes ">" caption table_head table_bodies table_foot "</table>"
    | "<script" attributes ">" raw "</script>"
    ;

items
    : %empty
    | items "<li" attributes ">" flows "</li>"
    ;

terms
    : %empty
    | terms "<dt" attributes ">" flows "</dt>"
    | terms "<dd" attributes ">" flows "</dd>"
    ;

caption
    : %empty
    | "<caption" attributes ">" phrases "</caption>"
    ;

table_head
    : %empty
    | "<thead" attributes ">" rows "</thead>"
    ;

table_bodies
    : "<tbody" attributes ">" rows "</tbody>"
    | table_bodies "<tbody" attributes ">" rows "</tbody>"
    ;

table_foot
    : %empty
    | "<tfoot" attributes ">" rows "</tfoot>"
    ;

rows
    : %empty
    | rows "<tr" attributes ">" cells "</tr>"
    ;

cells
    : %empty
    | cells "<th" attributes ">" flows "</th>"
    | cells "<td" attributes ">" flows "</td>"
    ;

// A link holds no link, nor does what is in it: the second list is the first without links.

phrases
    : %empty
    | phrases phrase
    ;

phrase
    : leaf
    | "<a" attributes ">" unlinked_phrases "</a>"
    | "<abbr" attributes ">" phrases "</abbr>"
    | "<b" attributes ">" phrases "</b>"
    | "<bdi" attributes ">" phrases "</bdi>"
    | "<bdo" attributes ">" phrases "</bdo>"
    | "<cite" attributes ">" phrases "</cite>"
    | "<code" attributes ">" phrases "</code>"
    | "<data" attributes ">" phrases "</data>"
    | "<del" attributes ">" phrases "</del>"
    | "<dfn" attributes ">" phrases "</dfn>"
    | "<em" attributes ">" phrases "</em>"
    | "<i" attributes ">" phrases "</i>"
    | "<ins" attributes ">" phrases "</ins>"
    | "<kbd" attributes ">" phrases "</kbd>"
    | "<label" attributes ">" phrases "</label>"
    | "<mark" attributes ">" phrases "</mark>"
    | "<output" attributes ">" phrases "</output>"
    | "<q" attributes ">" phrases "</q>"
    | "<s" attributes ">" phrases "</s>"
    | "<samp" attributes ">" phrases "</samp>"
    | "<small" attributes ">" phrases "</small>"
    | "<span" attributes ">" phrases "</span>"
    | "<strong" attributes ">" phrases "</strong>"
    | "<sub" attributes ">" phrases "</sub>"
    | "<sup" attributes ">" phrases "</sup>"
    | "<time" attributes ">" phrases "</time>"
    | "<u" attributes ">" phrases "</u>"
    | "<var" attributes ">" phrases "</var>"
    ;

unlinked_phrases
    : %empty
    | unlinked_phrases unlinked
    ;

unlinked
    : leaf
    | "<abbr" attributes ">" unlinked_phrases "</abbr>"
    | "<b" attributes ">" unlinked_phrases "</b>"
    | "<bdi" attributes ">" unlinked_phrases "</bdi>"
    | "<bdo" attributes ">" unlinked_phrases "</bdo>"
    | "<cite" attributes ">" unlinked_phrases "</cite>"
    | "<code" attributes ">" unlinked_phrases "</code>"
    | "<data" attributes ">" unlinked_phrases "</data>"
    | "<del" attributes ">" unlinked_phrases "</del>"
    | "<dfn" attributes ">" unlinked_phrases "</dfn>"
    | "<em" attributes ">" unlinked_phrases "</em>"
    | "<i" attributes ">" unlinked_phrases "</i>"
    | "<ins" attributes ">" unlinked_phrases "</ins>"
    | "<kbd" attributes ">" unlinked_phrases "</kbd>"
    | "<label" attributes ">" unlinked_phrases "</label>"
    | "<mark" attributes ">" unlinked_phrases "</mark>"
    | "<output" attributes ">" unlinked_phrases "</output>"
    | "<q" attributes ">" unlinked_phrases "</q>"
    | "<s" attributes ">" unlinked_phrases "</s>"
    | "<samp" attributes ">" unlinked_phrases "</samp>"
    | "<small" attributes ">" unlinked_phrases "</small>"
    | "<span" attributes ">" unlinked_phrases "</span>"
    | "<strong" attributes ">" unlinked_phrases "</strong>"
    | "<sub" attributes ">" unlinked_phrases "</sub>"
    | "<sup" attributes ">" unlinked_phrases "</sup>"
    | "<time" attributes ">" unlinked_phrases "</time>"
    | "<u" attributes ">" unlinked_phrases "</u>"
    | "<var" attributes ">" unlinked_phrases "</var>"
    ;

leaf
    : TEXT
    | "<br" attributes end
    | "<img" attributes end
    | "<input" attributes end
    | "<wbr" attributes end
    | "<button" attributes ">" words "</button>"
    | "<textarea" attributes ">" words "</textarea>"
    | "<select" attributes ">" options "</select>"
    ;

options
    : %empty
    | options "<option" attributes ">" words "</option>"
    ;
