// MicroPython includes this; there is no hardware.
#pragma once
#define mp_hal_pin_obj_t
