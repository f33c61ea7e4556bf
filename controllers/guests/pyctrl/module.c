// The module _aici: the functions used by aici.py (lib/).
#include "objects.h"
#include "py/objstr.h"
#include "py/runtime.h"

static mp_obj_t bytes_of(PyText text) { return mp_obj_new_bytes((const byte*)text.data, text.size); }

static void check_awaited(bool was_free) {
  if (!was_free) mp_raise_msg(&mp_type_RuntimeError, MP_ERROR_TEXT("two steps cannot be awaited at once"));
}

// ---- The sequence.

static mp_obj_t get_tokens(void) { return py_token_list(guest_tokens()); }
static MP_DEFINE_CONST_FUN_OBJ_0(get_tokens_obj, get_tokens);

static mp_obj_t num_tokens(void) { return mp_obj_new_int_from_uint(guest_tokens().size); }
static MP_DEFINE_CONST_FUN_OBJ_0(num_tokens_obj, num_tokens);

static mp_obj_t get_prompt_len(void) { return mp_obj_new_int_from_uint(guest_prompt_len()); }
static MP_DEFINE_CONST_FUN_OBJ_0(get_prompt_len_obj, get_prompt_len);

static mp_obj_t eos_token(void) { return mp_obj_new_int_from_uint(guest_eos()); }
static MP_DEFINE_CONST_FUN_OBJ_0(eos_token_obj, eos_token);

static mp_obj_t self_seq_id(void) { return mp_obj_new_int_from_uint(guest_seq_id()); }
static MP_DEFINE_CONST_FUN_OBJ_0(self_seq_id_obj, self_seq_id);

static mp_obj_t tokenize(mp_obj_t text) { return py_token_list(guest_tokenize(py_text_of(text))); }
static MP_DEFINE_CONST_FUN_OBJ_1(tokenize_obj, tokenize);

static mp_obj_t detokenize(mp_obj_t tokens) { return bytes_of(guest_decode(py_tokens_of(tokens))); }
static MP_DEFINE_CONST_FUN_OBJ_1(detokenize_obj, detokenize);

static mp_obj_t text_of(mp_obj_t bytes) {
  PyText text = guest_valid_text(py_text_of(bytes));
  return mp_obj_new_str(text.data, text.size);
}
static MP_DEFINE_CONST_FUN_OBJ_1(text_of_obj, text_of);

// ---- Variables.

static mp_obj_t get_var(mp_obj_t name) {
  PyText value;
  return guest_get_variable(py_text_of(name), &value) ? bytes_of(value) : mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_1(get_var_obj, get_var);

static mp_obj_t set_var(mp_obj_t name, mp_obj_t value) {
  guest_set_variable(py_text_of(name), py_text_of(value));
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_2(set_var_obj, set_var);

static mp_obj_t append_var(mp_obj_t name, mp_obj_t value) {
  guest_append_variable(py_text_of(name), py_text_of(value));
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_2(append_var_obj, append_var);

// ---- Steps: each function begins a step; the caller then yields, and is resumed with the outcome.

static mp_obj_t fixed(mp_obj_t tokens, mp_obj_t keep) {
  size_t num_kept = keep == mp_const_none ? 0 : (size_t)mp_obj_get_int(keep);
  check_awaited(guest_await_fixed(py_tokens_of(tokens), keep == mp_const_none ? NULL : &num_kept));
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_2(fixed_obj, fixed);

static uint32_t bound_of(mp_obj_t most) {
  mp_int_t num = most == mp_const_none ? 0 : mp_obj_get_int(most);
  if (most != mp_const_none && num < 1) mp_raise_ValueError(MP_ERROR_TEXT("max_bytes and max_words are 1 or more"));
  return (uint32_t)num;
}

// (constraint or None, max_tokens, stop_at, variable, max_bytes or None, max_words or None); "" if there is none.
static mp_obj_t gen(size_t num, const mp_obj_t* arguments) {
  (void)num;
  PyBounds bounds = {.max_bytes = bound_of(arguments[4]), .max_words = bound_of(arguments[5])};
  mp_int_t max_tokens = mp_obj_get_int(arguments[1]);
  if (max_tokens < 0) mp_raise_ValueError(MP_ERROR_TEXT("max_tokens is negative"));
  PyText stop_at = py_text_of(arguments[2]), variable = py_text_of(arguments[3]);
  GuestConstraint* constraint = arguments[0] == mp_const_none ? NULL : py_take_constraint(arguments[0]);
  check_awaited(guest_await_gen(constraint, (uint32_t)max_tokens, bounds, stop_at, variable));
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(gen_obj, 6, 6, gen);

static mp_obj_t fork(mp_obj_t number) {
  mp_int_t num = mp_obj_get_int(number);
  if (num < 1) mp_raise_ValueError(MP_ERROR_TEXT("a fork has at least one branch"));
  check_awaited(guest_await_fork((uint32_t)num));
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_1(fork_obj, fork);

static mp_obj_t wait_vars(mp_obj_t names) {
  size_t num;
  mp_obj_t* items;
  mp_obj_get_array(names, &num, &items);
  PyText* texts = m_new(PyText, num);
  for (size_t i = 0; i < num; i++) texts[i] = py_text_of(items[i]);
  check_awaited(guest_await_variables(texts, num));
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_1(wait_vars_obj, wait_vars);

static mp_obj_t pause(void) {
  check_awaited(guest_await_pause());
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_0(pause_obj, pause);

// step(fork_group) -> (kind, mask, backtrack, tokens); done(backtrack, tokens) -> whether the decisions end
static mp_obj_t own(mp_obj_t step, mp_obj_t done) {
  check_awaited(guest_await_own());
  MP_STATE_VM(aici_own_step) = step;
  MP_STATE_VM(aici_own_done) = done;
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_2(own_obj, own);

static mp_obj_t start(mp_obj_t coroutine) {
  if (!mp_obj_is_type(coroutine, &mp_type_gen_instance)) mp_raise_TypeError(MP_ERROR_TEXT("start() takes a coroutine, such as main()"));
  if (MP_STATE_VM(aici_started) != MP_OBJ_NULL) mp_raise_msg(&mp_type_RuntimeError, MP_ERROR_TEXT("a coroutine was started already"));
  MP_STATE_VM(aici_started) = coroutine;
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_1(start_obj, start);

static const mp_rom_map_elem_t names[] = {
    {MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR__aici)},
    {MP_ROM_QSTR(MP_QSTR_TokenSet), MP_ROM_PTR(&py_type_token_set)},
    {MP_ROM_QSTR(MP_QSTR_Constraint), MP_ROM_PTR(&py_type_constraint)},
    {MP_ROM_QSTR(MP_QSTR_get_tokens), MP_ROM_PTR(&get_tokens_obj)},
    {MP_ROM_QSTR(MP_QSTR_num_tokens), MP_ROM_PTR(&num_tokens_obj)},
    {MP_ROM_QSTR(MP_QSTR_get_prompt_len), MP_ROM_PTR(&get_prompt_len_obj)},
    {MP_ROM_QSTR(MP_QSTR_eos_token), MP_ROM_PTR(&eos_token_obj)},
    {MP_ROM_QSTR(MP_QSTR_self_seq_id), MP_ROM_PTR(&self_seq_id_obj)},
    {MP_ROM_QSTR(MP_QSTR_tokenize), MP_ROM_PTR(&tokenize_obj)},
    {MP_ROM_QSTR(MP_QSTR_detokenize), MP_ROM_PTR(&detokenize_obj)},
    {MP_ROM_QSTR(MP_QSTR_text_of), MP_ROM_PTR(&text_of_obj)},
    {MP_ROM_QSTR(MP_QSTR_get_var), MP_ROM_PTR(&get_var_obj)},
    {MP_ROM_QSTR(MP_QSTR_set_var), MP_ROM_PTR(&set_var_obj)},
    {MP_ROM_QSTR(MP_QSTR_append_var), MP_ROM_PTR(&append_var_obj)},
    {MP_ROM_QSTR(MP_QSTR_fixed), MP_ROM_PTR(&fixed_obj)},
    {MP_ROM_QSTR(MP_QSTR_gen), MP_ROM_PTR(&gen_obj)},
    {MP_ROM_QSTR(MP_QSTR_fork), MP_ROM_PTR(&fork_obj)},
    {MP_ROM_QSTR(MP_QSTR_wait_vars), MP_ROM_PTR(&wait_vars_obj)},
    {MP_ROM_QSTR(MP_QSTR_pause), MP_ROM_PTR(&pause_obj)},
    {MP_ROM_QSTR(MP_QSTR_own), MP_ROM_PTR(&own_obj)},
    {MP_ROM_QSTR(MP_QSTR_start), MP_ROM_PTR(&start_obj)},
};
static MP_DEFINE_CONST_DICT(dictionary, names);

const mp_obj_module_t py_module_aici = {.base = {&mp_type_module}, .globals = (mp_obj_dict_t*)&dictionary};

MP_REGISTER_MODULE(MP_QSTR__aici, py_module_aici);
