// CodeMirror for the playground's languages. The editor lives in a shadow root: its styles are adopted style sheets
// there, which the policy of the page allows, where a <style> element would be refused.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, Prec, type Extension, type Text } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import steps from "../../../../controllers/aici_controllers/declctrl.schema.json";
import typescript from "../../../../controllers/aici_controllers/script_starters/javascript/aici.d.ts?raw";
import stubs from "../../../../controllers/aici_controllers/script_starters/python/aici.pyi?raw";
import { keysOfSchema, namesOfPython, namesOfTypeScript, type Name } from "./declarations.ts";
import type { Language } from "./languages.ts";

/** Line and column count from 1, in code points; 0 without a place. As `POST /v1/check/source` has them. */
export interface Problem {
  severity: "error" | "warning";
  line: number;
  column: number;
  message: string;
}

export interface Editor {
  text(): string;
  replace(text: string): void;
  speak(language: Language): void;
  mark(problems: readonly Problem[]): void;
  goTo(problem: Problem): void;
  destroy(): void;
}

const yacc = StreamLanguage.define({
  token(stream) {
    if (stream.match(/^\/\/.*/) || stream.match(/^#.*/)) return "comment";
    if (stream.match(/^"(?:[^"\\]|\\.)*"?/) || stream.match(/^'(?:[^'\\]|\\.)*'?/)) return "string";
    if (stream.match(/^%%|^%[a-z-]+/)) return "keyword";
    if (stream.match(/^[A-Za-z_][\w-]*(?=\s*(?::|::=))/)) return "definition(variableName)";
    if (stream.match(/^[A-Za-z_][\w-]*/)) return "variableName";
    if (stream.match(/^[:|;?*+()[\]]/)) return "operator";
    stream.next();
    return null;
  },
});

const regex = StreamLanguage.define({
  token(stream) {
    if (stream.match(/^\\./)) return "keyword";
    if (stream.match(/^\[(?:[^\]\\]|\\.)*\]?/)) return "string";
    if (stream.match(/^[()|?*+.^$]|^\{[\d,]+\}/)) return "operator";
    stream.next();
    return null;
  },
});

const GRAMMARS: Record<Language, () => Extension> = {
  javascript: () => javascript(),
  python: () => python(),
  steps: () => json(),
  json_schema: () => json(),
  grammar: () => yacc,
  regex: () => regex,
};

const NAMES: Partial<Record<Language, () => Name[]>> = {
  javascript: () => namesOfTypeScript(typescript),
  python: () => namesOfPython(stubs),
  steps: () => keysOfSchema(steps),
};

const KINDS: Record<Name["kind"], string> = {
  function: "function",
  class: "class",
  method: "method",
  property: "property",
  variable: "variable",
};

/** Complete names: after a dot those of classes, and for Python's `aici.` those of the module. */
function completions(language: Language): (context: CompletionContext) => CompletionResult | null {
  const names = NAMES[language]?.() ?? [];
  return (context) => {
    const word = context.matchBefore(/[\w$]*/);
    const from = word?.from ?? context.pos;
    const before = context.state.sliceDoc(Math.max(0, from - 40), from);
    const isMember = before.endsWith(".");
    if (names.length === 0 || (!context.explicit && !isMember && from === context.pos)) return null;
    const isModule = language === "python" && /\baici\.$/.test(before);
    const fits = (name: Name) => !isMember || (isModule ? name.owner === "" : name.kind === "method" || name.owner !== "" && !name.label.endsWith("="));
    const options = names.filter(fits).map(
      (name): Completion => ({
        label: name.label,
        type: KINDS[name.kind],
        detail: name.detail,
        info: [name.owner, name.info].filter(Boolean).join(": "),
        boost: name.owner === "" ? 1 : 0,
      }),
    );
    return { from, options, validFor: /^[\w$]*$/ };
  };
}

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.controlKeyword, tags.operatorKeyword], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--warn)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
  { tag: [tags.definition(tags.variableName), tags.propertyName], fontWeight: "600" },
  { tag: tags.operator, color: "var(--faint)" },
]);

const theme = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "var(--back)", fontSize: "0.9rem" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--faint)", border: "none" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--raised) 60%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "color-mix(in srgb, var(--accent) 30%, transparent)",
  },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "color-mix(in srgb, var(--accent) 25%, transparent)" },
  ".cm-tooltip": { color: "var(--text)", backgroundColor: "var(--raised)", border: "1px solid var(--line)" },
  ".cm-tooltip.cm-completionInfo": { maxWidth: "24rem", padding: "0.4rem 0.6rem", whiteSpace: "normal" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "inherit", opacity: "0.75" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  ".cm-diagnostic-warning": { borderLeftColor: "var(--warn)" },
});

export function makeEditor(
  host: HTMLElement,
  options: { text: string; language: Language; label: string; onChange(text: string): void; onRun(): void },
): Editor {
  const shadow = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const spoken = new Compartment();
  const of = (language: Language) => [GRAMMARS[language](), autocompletion({ override: [completions(language)] })];
  const run = () => {
    options.onRun();
    return true;
  };
  const view = new EditorView({
    parent: shadow,
    root: shadow,
    state: EditorState.create({
      doc: options.text,
      extensions: [
        Prec.highest(keymap.of([{ key: "Mod-Enter", run }])),
        lineNumbers(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        highlightActiveLine(),
        lintGutter(),
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap, ...lintKeymap]),
        spoken.of(of(options.language)),
        syntaxHighlighting(colours),
        theme,
        EditorView.contentAttributes.of({ "aria-label": options.label, tabindex: "0" }),
        EditorView.updateListener.of((update) => update.docChanged && options.onChange(update.state.doc.toString())),
      ],
    }),
  });
  return {
    text: () => view.state.doc.toString(),
    replace: (text) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } }),
    speak: (language) => view.dispatch({ effects: spoken.reconfigure(of(language)) }),
    mark(problems) {
      const placed = problems.map((problem) => {
        const from = offsetOf(view.state.doc, problem);
        const word = view.state.wordAt(from);
        const to = Math.min(view.state.doc.length, word && word.from === from ? word.to : from + 1);
        return { from: Math.min(from, to), to, severity: problem.severity, message: problem.message };
      });
      view.dispatch(setDiagnostics(view.state, placed));
    },
    goTo(problem) {
      view.dispatch({ selection: { anchor: offsetOf(view.state.doc, problem) }, scrollIntoView: true });
      view.focus();
    },
    destroy: () => view.destroy(),
  };
}

/** The offset of a place, whose column counts code points. */
function offsetOf(doc: Text, { line, column }: Problem): number {
  if (line < 1 || line > doc.lines) return line < 1 ? 0 : doc.length;
  const found = doc.line(line);
  const before = [...found.text].slice(0, Math.max(0, column - 1)).join("");
  return Math.min(found.to, found.from + before.length);
}
