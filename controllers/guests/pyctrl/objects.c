#include "objects.h"

#include "py/objstr.h"
#include "py/runtime.h"

mp_obj_t py_token_list(PyTokens tokens) {
  mp_obj_list_t* list = MP_OBJ_TO_PTR(mp_obj_new_list(tokens.size, NULL));
  for (size_t i = 0; i < tokens.size; i++) list->items[i] = MP_OBJ_NEW_SMALL_INT(tokens.data[i]);
  return MP_OBJ_FROM_PTR(list);
}

uint32_t py_token_of(mp_obj_t number) {
  mp_int_t token = mp_obj_get_int(number);
  if (token < 0 || (mp_uint_t)token >= guest_vocab_size())
    mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("%d is no token: there are %u"), (int)token, (unsigned)guest_vocab_size());
  return (uint32_t)token;
}

PyTokens py_tokens_of(mp_obj_t list) {
  size_t size;
  mp_obj_t* items;
  mp_obj_get_array(list, &size, &items);
  uint32_t* tokens = m_new(uint32_t, size);
  for (size_t i = 0; i < size; i++) tokens[i] = py_token_of(items[i]);
  return (PyTokens){tokens, size};
}

PyText py_text_of(mp_obj_t text) {
  mp_buffer_info_t buffer;
  if (!mp_get_buffer(text, &buffer, MP_BUFFER_READ))
    mp_raise_msg_varg(&mp_type_TypeError, MP_ERROR_TEXT("a string or bytes are needed, not %s"), mp_obj_get_type_str(text));
  return (PyText){buffer.buf, buffer.len};
}

// ---- TokenSet: like a list of bools, one per token.

typedef struct TokenSetObject {
  mp_obj_base_t base;
  GuestTokenSet* set;
} TokenSetObject;

GuestTokenSet* py_token_set(mp_obj_t set) {
  mp_obj_t native = mp_obj_cast_to_native_base(set, MP_OBJ_FROM_PTR(&py_type_token_set));
  if (native == MP_OBJ_NULL) mp_raise_msg_varg(&mp_type_TypeError, MP_ERROR_TEXT("a TokenSet is needed, not %s"), mp_obj_get_type_str(set));
  return ((TokenSetObject*)MP_OBJ_TO_PTR(native))->set;
}

static mp_obj_t set_make(const mp_obj_type_t* type, size_t num, size_t num_named, const mp_obj_t* arguments) {
  (void)arguments;
  mp_arg_check_num(num, num_named, 0, 0, false);
  TokenSetObject* self = mp_obj_malloc_with_finaliser(TokenSetObject, type);
  self->set = guest_set_new();
  return MP_OBJ_FROM_PTR(self);
}

static mp_obj_t set_delete(mp_obj_t self) {
  guest_set_delete(py_token_set(self));
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_1(set_delete_obj, set_delete);

static mp_obj_t set_all(mp_obj_t self, mp_obj_t value) {
  guest_set_put_all(py_token_set(self), mp_obj_is_true(value));
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_2(set_all_obj, set_all);

static mp_obj_t num_set(mp_obj_t self) { return mp_obj_new_int_from_uint(guest_set_count(py_token_set(self))); }
static MP_DEFINE_CONST_FUN_OBJ_1(num_set_obj, num_set);

static mp_obj_t set_subscr(mp_obj_t self, mp_obj_t index, mp_obj_t value) {
  if (value == MP_OBJ_NULL) return MP_OBJ_NULL;  // del: the interpreter reports that deleting is impossible
  uint32_t token = py_token_of(index);
  if (value == MP_OBJ_SENTINEL) return mp_obj_new_bool(guest_set_has(py_token_set(self), token));
  guest_set_put(py_token_set(self), token, mp_obj_is_true(value));
  return mp_const_none;
}

typedef struct SetIterator {
  mp_obj_base_t base;
  mp_fun_1_t next;
  mp_obj_t set;
  uint32_t token;
} SetIterator;

static mp_obj_t set_next(mp_obj_t iterator) {
  SetIterator* self = MP_OBJ_TO_PTR(iterator);
  if (self->token == guest_vocab_size()) return MP_OBJ_STOP_ITERATION;
  return mp_obj_new_bool(guest_set_has(py_token_set(self->set), self->token++));
}

static mp_obj_t set_iterate(mp_obj_t self, mp_obj_iter_buf_t* buffer) {
  _Static_assert(sizeof(SetIterator) <= sizeof(mp_obj_iter_buf_t), "the interpreter lends as much memory as this");
  SetIterator* iterator = (SetIterator*)buffer;
  *iterator = (SetIterator){{&mp_type_polymorph_iter}, set_next, self, 0};
  return MP_OBJ_FROM_PTR(iterator);
}

static mp_obj_t set_unary(mp_unary_op_t operator, mp_obj_t self) {
  if (operator == MP_UNARY_OP_LEN) return mp_obj_new_int_from_uint(guest_vocab_size());
  if (operator == MP_UNARY_OP_BOOL) return mp_obj_new_bool(guest_set_count(py_token_set(self)) > 0);
  return MP_OBJ_NULL;
}

static void set_print(const mp_print_t* print, mp_obj_t self, mp_print_kind_t kind) {
  (void)kind;
  mp_printf(print, "<TokenSet: %u of %u>", (unsigned)guest_set_count(py_token_set(self)), (unsigned)guest_vocab_size());
}

static const mp_rom_map_elem_t set_names[] = {
    {MP_ROM_QSTR(MP_QSTR___del__), MP_ROM_PTR(&set_delete_obj)},
    {MP_ROM_QSTR(MP_QSTR_set_all), MP_ROM_PTR(&set_all_obj)},
    {MP_ROM_QSTR(MP_QSTR_num_set), MP_ROM_PTR(&num_set_obj)},
};
static MP_DEFINE_CONST_DICT(set_dict, set_names);

MP_DEFINE_CONST_OBJ_TYPE(py_type_token_set, MP_QSTR_TokenSet, MP_TYPE_FLAG_NONE, make_new, set_make, print, set_print, unary_op,
                         set_unary, iter, set_iterate, subscr, set_subscr, locals_dict, &set_dict);

// ---- Constraint.

typedef struct ConstraintObject {
  mp_obj_base_t base;
  GuestConstraint* constraint;  // null once given away
} ConstraintObject;

static ConstraintObject* constraint_object(mp_obj_t self) {
  mp_obj_t native = mp_obj_cast_to_native_base(self, MP_OBJ_FROM_PTR(&py_type_constraint));
  if (native == MP_OBJ_NULL) mp_raise_msg_varg(&mp_type_TypeError, MP_ERROR_TEXT("a Constraint is needed, not %s"), mp_obj_get_type_str(self));
  return MP_OBJ_TO_PTR(native);
}

GuestConstraint* py_constraint(mp_obj_t self) {
  GuestConstraint* constraint = constraint_object(self)->constraint;
  if (!constraint) mp_raise_ValueError(MP_ERROR_TEXT("this constraint was used up: make another"));
  return constraint;
}

GuestConstraint* py_take_constraint(mp_obj_t self) {
  GuestConstraint* constraint = py_constraint(self);
  constraint_object(self)->constraint = NULL;
  return constraint;
}

// Constraint(): anything. Constraint(kind, texts): see aici.py.
static mp_obj_t constraint_make(const mp_obj_type_t* type, size_t num, size_t num_named, const mp_obj_t* arguments) {
  mp_arg_check_num(num, num_named, 0, 2, false);
  ConstraintKind kind = num ? (ConstraintKind)mp_obj_get_int(arguments[0]) : ANYTHING;
  size_t num_texts = 0;
  mp_obj_t* items = NULL;
  if (num == 2) mp_obj_get_array(arguments[1], &num_texts, &items);
  PyText* texts = m_new(PyText, num_texts);
  for (size_t i = 0; i < num_texts; i++) texts[i] = py_text_of(items[i]);
  ConstraintObject* self = mp_obj_malloc_with_finaliser(ConstraintObject, type);
  PyText problem;
  self->constraint = guest_constraint_new(kind, texts, num_texts, &problem);
  if (!self->constraint) mp_raise_type_arg(&mp_type_ValueError, mp_obj_new_str(problem.data, problem.size));
  return MP_OBJ_FROM_PTR(self);
}

static mp_obj_t constraint_delete(mp_obj_t self) {
  guest_constraint_delete(constraint_object(self)->constraint);
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_1(constraint_delete_obj, constraint_delete);

static mp_obj_t checked(GuestConstraint* constraint, mp_obj_t result) {
  const char* why = guest_constraint_error(constraint);
  if (why) mp_raise_msg_varg(&mp_type_RuntimeError, MP_ERROR_TEXT("%s"), why);
  return result;
}

static mp_obj_t eos_allowed(mp_obj_t self) {
  GuestConstraint* constraint = py_constraint(self);
  return checked(constraint, mp_obj_new_bool(guest_eos_allowed(constraint)));
}
static MP_DEFINE_CONST_FUN_OBJ_1(eos_allowed_obj, eos_allowed);

static mp_obj_t eos_forced(mp_obj_t self) {
  GuestConstraint* constraint = py_constraint(self);
  return checked(constraint, mp_obj_new_bool(guest_eos_forced(constraint)));
}
static MP_DEFINE_CONST_FUN_OBJ_1(eos_forced_obj, eos_forced);

static mp_obj_t token_allowed(mp_obj_t self, mp_obj_t token) {
  GuestConstraint* constraint = py_constraint(self);
  return checked(constraint, mp_obj_new_bool(guest_token_allowed(constraint, py_token_of(token))));
}
static MP_DEFINE_CONST_FUN_OBJ_2(token_allowed_obj, token_allowed);

static mp_obj_t append_token(mp_obj_t self, mp_obj_t number) {
  GuestConstraint* constraint = py_constraint(self);
  uint32_t token = py_token_of(number);
  bool was_allowed = guest_append_token(constraint, token);
  checked(constraint, mp_const_none);
  if (!was_allowed) mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("token %u is not allowed here"), (unsigned)token);
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_2(append_token_obj, append_token);

static mp_obj_t allow_tokens(mp_obj_t self, mp_obj_t set) {
  GuestConstraint* constraint = py_constraint(self);
  guest_allow_tokens(constraint, py_token_set(set));
  return checked(constraint, mp_const_none);
}
static MP_DEFINE_CONST_FUN_OBJ_2(allow_tokens_obj, allow_tokens);

static const mp_rom_map_elem_t constraint_names[] = {
    {MP_ROM_QSTR(MP_QSTR___del__), MP_ROM_PTR(&constraint_delete_obj)},
    {MP_ROM_QSTR(MP_QSTR_eos_allowed), MP_ROM_PTR(&eos_allowed_obj)},
    {MP_ROM_QSTR(MP_QSTR_eos_forced), MP_ROM_PTR(&eos_forced_obj)},
    {MP_ROM_QSTR(MP_QSTR_token_allowed), MP_ROM_PTR(&token_allowed_obj)},
    {MP_ROM_QSTR(MP_QSTR_append_token), MP_ROM_PTR(&append_token_obj)},
    {MP_ROM_QSTR(MP_QSTR_allow_tokens), MP_ROM_PTR(&allow_tokens_obj)},
};
static MP_DEFINE_CONST_DICT(constraint_dict, constraint_names);

MP_DEFINE_CONST_OBJ_TYPE(py_type_constraint, MP_QSTR_Constraint, MP_TYPE_FLAG_NONE, make_new, constraint_make, locals_dict, &constraint_dict);
