// Convert values of the controller to Python objects and back. Functions that take an object raise if the object is
// invalid.
#pragma once
#include "guest.h"
#include "py/obj.h"

extern const mp_obj_type_t py_type_token_set;
extern const mp_obj_type_t py_type_constraint;

mp_obj_t py_token_list(PyTokens tokens);
PyTokens py_tokens_of(mp_obj_t list);  // of a list or tuple; each below the vocabulary size
uint32_t py_token_of(mp_obj_t number);
PyText py_text_of(mp_obj_t text);  // of str or bytes
GuestTokenSet* py_token_set(mp_obj_t set);
GuestConstraint* py_constraint(mp_obj_t constraint);
GuestConstraint* py_take_constraint(mp_obj_t constraint);  // the object is empty afterwards
