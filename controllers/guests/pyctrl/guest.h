// The interface between the interpreter, in C, and the controller, in C++. Neither a longjmp nor a Python error crosses
// the interface: a function that can fail returns whether it failed.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Borrowed: a result is valid until the next call of any function here.
typedef struct PyText {
  const char* data;
  size_t size;
} PyText;

// 0: there is none.
typedef struct PyBounds {
  uint32_t max_bytes, max_words;
} PyBounds;

typedef struct PyTokens {
  const uint32_t* data;
  size_t size;
} PyTokens;

// ---- Functions of the controller, called by the interpreter.

PyTokens guest_tokens(void);  // of the sequence so far
size_t guest_prompt_len(void);
uint32_t guest_vocab_size(void);
uint32_t guest_eos(void);
uint32_t guest_seq_id(void);
PyTokens guest_tokenize(PyText text);
PyText guest_decode(PyTokens tokens);
PyText guest_valid_text(PyText bytes);  // U+FFFD in place of bytes that are not UTF-8

bool guest_get_variable(PyText name, PyText* value);  // false: never set
void guest_set_variable(PyText name, PyText value);
void guest_append_variable(PyText name, PyText value);

void guest_print(PyText text);

// The step to wait for from now on. Returns false if the program already waits for another step.
typedef struct GuestConstraint GuestConstraint;
bool guest_await_fixed(PyTokens tokens, const size_t* keep);  // null: keep the whole sequence
// Takes ownership of the constraint.
bool guest_await_gen(GuestConstraint* constraint, uint32_t max_tokens, PyBounds bounds, PyText stop_at, PyText variable);
bool guest_await_fork(uint32_t num);
bool guest_await_variables(const PyText* names, size_t num);
bool guest_await_pause(void);
bool guest_await_own(void);
bool guest_is_waiting(void);

typedef struct GuestTokenSet GuestTokenSet;
GuestTokenSet* guest_set_new(void);
void guest_set_delete(GuestTokenSet* set);
bool guest_set_has(const GuestTokenSet* set, uint32_t token);
void guest_set_put(GuestTokenSet* set, uint32_t token, bool allowed);
void guest_set_put_all(GuestTokenSet* set, bool allowed);
uint32_t guest_set_count(const GuestTokenSet* set);

typedef enum ConstraintKind {
  ANYTHING,
  REGEX,
  GRAMMAR,
  JSON_SCHEMA,
  SUBSTRING,  // the part of the first text up to the second
  CHOICES,    // one of the texts
  OPTIONS,    // one of the texts, in the tokens of the tokenizer
} ConstraintKind;

// Null, with `problem`, if invalid.
GuestConstraint* guest_constraint_new(ConstraintKind kind, const PyText* texts, size_t num, PyText* problem);
void guest_constraint_delete(GuestConstraint* constraint);
bool guest_eos_allowed(GuestConstraint* constraint);
bool guest_eos_forced(GuestConstraint* constraint);
bool guest_token_allowed(GuestConstraint* constraint, uint32_t token);
void guest_allow_tokens(GuestConstraint* constraint, GuestTokenSet* set);  // adds the tokens that may come next
bool guest_append_token(GuestConstraint* constraint, uint32_t token);      // false: not allowed
const char* guest_constraint_error(const GuestConstraint* constraint);     // null: none

// ---- Functions of the interpreter, called by the controller. False: the program failed, and py_problem has the
// message.

typedef enum OwnKind { SAMPLE, SPLICE, HOLD, SKIP, STOP } OwnKind;

typedef struct PyOwn {
  OwnKind kind;
  GuestTokenSet* mask;
  uint32_t backtrack;
  PyTokens tokens;
} PyOwn;

// The outcome of the awaited step: at most one of these calls.
typedef enum PyOutcomeKind { NOTHING, TOKENS, NUMBER, VALUES } PyOutcomeKind;

typedef struct PyOutcome {
  PyOutcomeKind kind;
  PyTokens tokens;
  uint32_t number;
  const PyText* values;
  size_t num_values;
} PyOutcome;

bool py_compile(PyText script);  // once, first
bool py_start(void);
bool py_resume(const PyOutcome* outcome);
bool py_own_step(PyTokens fork_group, PyOwn* own);
bool py_own_done(uint32_t backtrack, PyTokens tokens, bool* over);
int py_log_level(void);
PyText py_problem(void);
size_t py_problem_column(void);  // of a syntax error, as MicroPython counts: bytes, tabs to the next eight; 0: not known

#ifdef __cplusplus
}
#endif
