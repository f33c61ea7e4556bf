// The interpreter: its memory, and a program that is run, suspended and resumed.
#include <string.h>

#include "guest.h"
#include "objects.h"
#include "py/builtin.h"
#include "py/compile.h"
#include "py/cstack.h"
#include "py/gc.h"
#include "py/mphal.h"
#include "py/objgenerator.h"
#include "py/runtime.h"

enum {
  FIRST_HEAP_BYTES = 128 * 1024,
  MAX_HEAP_BYTES = 64 * 1024 * 1024,
  // Deeper recursion raises RuntimeError. Without the limit, WebAssembly's own stack of 512 KiB would end the guest: a
  // call takes about three times as much there.
  MAX_STACK_BYTES = 96 * 1024,
  // Garbage is collected after this much was allocated, or a quarter of the heap.
  COLLECT_EVERY_BYTES = 64 * 1024,
};

// The coroutines, run one after another: the script's own, if the script awaits, and the coroutine started by the
// script.
MP_REGISTER_ROOT_POINTER(mp_obj_t aici_script);
MP_REGISTER_ROOT_POINTER(mp_obj_t aici_running);
MP_REGISTER_ROOT_POINTER(mp_obj_t aici_started);
// The functions that decide token by token in a step, and the result of the last call.
MP_REGISTER_ROOT_POINTER(mp_obj_t aici_own_step);
MP_REGISTER_ROOT_POINTER(mp_obj_t aici_own_done);
MP_REGISTER_ROOT_POINTER(mp_obj_t aici_own);

// ---- Memory: see MICROPY_GC_SPLIT_HEAP_AUTO in mpconfigport.h.

static bool is_garbage_wanted;

void gc_collect(void) { is_garbage_wanted = true; }

size_t gc_get_max_new_split(void) { return MAX_HEAP_BYTES; }

static void plan_collection(void) {
  size_t heap = 0;
  for (mp_state_mem_area_t* area = &MP_STATE_MEM(area); area; area = area->next) heap += (size_t)(area->gc_pool_end - area->gc_pool_start);
  MP_STATE_MEM(gc_alloc_threshold) = MAX(COLLECT_EVERY_BYTES, heap / 4) / MICROPY_BYTES_PER_GC_BLOCK;
}

// Only while no frame of the interpreter is live.
static void collect_garbage(void) {
  if (!is_garbage_wanted) return;
  is_garbage_wanted = false;
  gc_collect_start();
  gc_collect_end();
  plan_collection();
}

// ---- Output: one host function per line.

static char line[1024];
static size_t line_size;

static void flush(void) {
  guest_print((PyText){line, line_size});
  line_size = 0;
}

void mp_hal_stdout_tx_strn_cooked(const char* text, size_t size) {
  for (size_t i = 0; i < size; i++) {
    line[line_size++] = text[i];
    if (text[i] == '\n' || line_size == sizeof(line)) flush();
  }
}

// ---- Failures.

static char problem[16 * 1024];
static size_t problem_size;

static void add_to_problem(void* unused, const char* text, size_t size) {
  (void)unused;
  if (size > sizeof(problem) - problem_size) size = sizeof(problem) - problem_size;
  memcpy(problem + problem_size, text, size);
  problem_size += size;
}

static void note_problem(mp_obj_t exception) {
  if (line_size) flush();
  problem_size = 0;
  mp_print_t print = {NULL, add_to_problem};
  mp_obj_print_exception(&print, exception);
  while (problem_size && problem[problem_size - 1] == '\n') problem_size--;
}

PyText py_problem(void) { return (PyText){problem, problem_size}; }

// Cannot happen: every run has a handler.
void nlr_jump_fail(void* value) {
  (void)value;
  __builtin_trap();
}

// ---- Running. `try` takes a function because no state of the caller may be in registers at a failure.

static bool try(void (*run)(void* argument), void* argument) {
  collect_garbage();
  nlr_buf_t handler;
  if (nlr_push(&handler) == 0) {
    run(argument);
    nlr_pop();
    if (line_size) flush();
    return true;
  }
  note_problem(MP_OBJ_FROM_PTR(handler.ret_val));
  return false;
}

// MicroPython's syntax errors have a line only. The lexer knows the column of the token that the parser refused; the
// parser frees the lexer at the error, and the lexer closes its reader first.
static mp_lexer_t* lexer;
static void (*close_reader)(void* data);
static size_t problem_column;

static void note_column(void* data) {
  problem_column = lexer->tok_column;
  close_reader(data);
}

static void compile(void* argument) {
  const PyText* script = argument;
  problem_column = 0;
  lexer = mp_lexer_new_from_str_len(qstr_from_str("main.py"), script->data, script->size, 0);
  close_reader = lexer->reader.close;
  lexer->reader.close = note_column;
  qstr name = lexer->source_name;
  mp_parse_tree_t tree = mp_parse(lexer, MP_PARSE_FILE_INPUT);
  problem_column = 0;  // the syntax is right; errors of the compiler have a line only
  mp_compile_allow_top_level_await = true;
  MP_STATE_VM(aici_script) = mp_compile(&tree, name, false);
  mp_compile_allow_top_level_await = false;
}

bool py_compile(PyText script) {
  char* heap = malloc(FIRST_HEAP_BYTES);
  mp_cstack_init_with_sp_here(MAX_STACK_BYTES);
  gc_init(heap, heap + FIRST_HEAP_BYTES);
  plan_collection();
  mp_init();
  return try(compile, &script);
}

size_t py_problem_column(void) { return problem_column; }

static void check_nothing_begun(void) {
  if (guest_is_waiting()) mp_raise_msg(&mp_type_RuntimeError, MP_ERROR_TEXT("a step was begun but is not awaited"));
}

// Run the script's coroutine until it waits for a step, then the coroutine started by the script.
static void advance(mp_obj_t value) {
  while (MP_STATE_VM(aici_running) != MP_OBJ_NULL) {
    mp_obj_t result;
    mp_vm_return_kind_t kind = mp_resume(MP_STATE_VM(aici_running), value, MP_OBJ_NULL, &result);
    if (kind == MP_VM_RETURN_EXCEPTION) nlr_raise(result);
    if (kind == MP_VM_RETURN_YIELD) {
      if (guest_is_waiting()) return;
      mp_raise_TypeError(MP_ERROR_TEXT("only steps of aici can be awaited, and what awaits them"));
    }
    check_nothing_begun();
    MP_STATE_VM(aici_running) = MP_STATE_VM(aici_started);
    MP_STATE_VM(aici_started) = MP_OBJ_NULL;
    value = mp_const_none;
  }
}

static void start(void* unused) {
  (void)unused;
  mp_obj_t script = mp_call_function_0(MP_STATE_VM(aici_script));
  bool awaits = mp_obj_is_type(script, &mp_type_gen_instance);
  check_nothing_begun();
  if (!awaits && MP_STATE_VM(aici_started) == MP_OBJ_NULL) {
    mp_obj_dict_t* globals = mp_globals_get();
    bool has_main = mp_map_lookup(&globals->map, MP_OBJ_NEW_QSTR(MP_QSTR_main), MP_MAP_LOOKUP) != NULL;
    mp_raise_msg(&mp_type_RuntimeError, has_main ? MP_ERROR_TEXT("nothing was started: end the script with aici.start(main())")
                                                 : MP_ERROR_TEXT("nothing was started: await a step, or call aici.start(...)"));
  }
  MP_STATE_VM(aici_running) = awaits ? script : MP_STATE_VM(aici_started);
  if (!awaits) MP_STATE_VM(aici_started) = MP_OBJ_NULL;
  advance(mp_const_none);
}

bool py_start(void) { return try(start, NULL); }

static void resume(void* argument) {
  const PyOutcome* outcome = argument;
  switch (outcome->kind) {
    case NOTHING:
      return advance(mp_const_none);
    case TOKENS:
      return advance(py_token_list(outcome->tokens));
    case NUMBER:
      return advance(mp_obj_new_int_from_uint(outcome->number));
    case VALUES: {
      mp_obj_t values = mp_obj_new_list(0, NULL);
      for (size_t i = 0; i < outcome->num_values; i++)
        mp_obj_list_append(values, mp_obj_new_bytes((const byte*)outcome->values[i].data, outcome->values[i].size));
      return advance(values);
    }
  }
}

bool py_resume(const PyOutcome* outcome) { return try(resume, (void*)outcome); }

// ---- Steps in which the program decides token by token.

typedef struct OwnCall {
  PyTokens tokens;
  uint32_t backtrack;
  PyOwn* own;
  bool* over;
} OwnCall;

static void own_step(void* argument) {
  const OwnCall* call = argument;
  mp_obj_t answer = mp_call_function_1(MP_STATE_VM(aici_own_step), py_token_list(call->tokens));
  MP_STATE_VM(aici_own) = answer;  // keeps the mask
  mp_obj_t* items;
  mp_obj_get_array_fixed_n(answer, 4, &items);
  *call->own = (PyOwn){
      .kind = (OwnKind)mp_obj_get_int(items[0]),
      .mask = items[1] == mp_const_none ? NULL : py_token_set(items[1]),
      .backtrack = (uint32_t)mp_obj_get_int(items[2]),
      .tokens = py_tokens_of(items[3]),
  };
}

bool py_own_step(PyTokens fork_group, PyOwn* own) {
  OwnCall call = {.tokens = fork_group, .own = own};
  return try(own_step, &call);
}

static void own_done(void* argument) {
  const OwnCall* call = argument;
  mp_obj_t over = mp_call_function_2(MP_STATE_VM(aici_own_done), mp_obj_new_int_from_uint(call->backtrack), py_token_list(call->tokens));
  *call->over = mp_obj_is_true(over);
}

bool py_own_done(uint32_t backtrack, PyTokens tokens, bool* over) {
  OwnCall call = {.tokens = tokens, .backtrack = backtrack, .over = over};
  return try(own_done, &call);
}

// aici.log_level, if the script imported aici.
int py_log_level(void) {
  mp_map_elem_t* module = mp_map_lookup(&MP_STATE_VM(mp_loaded_modules_dict).map, MP_OBJ_NEW_QSTR(MP_QSTR_aici), MP_MAP_LOOKUP);
  if (!module) return 1;
  mp_obj_dict_t* globals = mp_obj_module_get_globals(module->value);
  mp_map_elem_t* level = mp_map_lookup(&globals->map, MP_OBJ_NEW_QSTR(MP_QSTR_log_level), MP_MAP_LOOKUP);
  return level && mp_obj_is_small_int(level->value) ? (int)MP_OBJ_SMALL_INT_VALUE(level->value) : 1;
}
