// The modules written in Python, which `import` finds like files.
#include <string.h>

#include "py/builtin.h"
#include "py/lexer.h"
#include "py/mperrno.h"
#include "py/runtime.h"

static const char aici[] = {
#embed "lib/aici.py"
};
static const char pyaici[] = {
#embed "lib/pyaici.py"
};
static const char abc[] = {
#embed "lib/abc.py"
};
static const char functools[] = {
#embed "lib/functools.py"
};
static const char typing[] = {
#embed "lib/typing.py"
};
static const char re[] = {
#embed "lib/re.py"
};
static const char itertools[] = {
#embed "lib/itertools.py"
};
static const char operator[] = {
#embed "lib/operator.py"
};
static const char contextlib[] = {
#embed "lib/contextlib.py"
};
static const char types[] = {
#embed "lib/types.py"
};
static const char string[] = {
#embed "lib/string.py"
};
static const char keyword[] = {
#embed "lib/keyword.py"
};
static const char copy[] = {
#embed "lib/copy.py"
};
static const char bisect[] = {
#embed "lib/bisect.py"
};
static const char enum_[] = {
#embed "lib/enum.py"
};
static const char collections[] = {
#embed "lib/collections/__init__.py"
};
static const char collections_abc[] = {
#embed "lib/collections/abc.py"
};

static const struct {
  const char* path;
  const char* text;
  size_t size;
} files[] = {
    {"aici.py", aici, sizeof(aici)},
    {"pyaici/__init__.py", pyaici, sizeof(pyaici)},
    {"abc.py", abc, sizeof(abc)},
    {"functools.py", functools, sizeof(functools)},
    {"typing.py", typing, sizeof(typing)},
    {"re.py", re, sizeof(re)},
    {"itertools.py", itertools, sizeof(itertools)},
    {"operator.py", operator, sizeof(operator)},
    {"contextlib.py", contextlib, sizeof(contextlib)},
    {"types.py", types, sizeof(types)},
    {"string.py", string, sizeof(string)},
    {"keyword.py", keyword, sizeof(keyword)},
    {"copy.py", copy, sizeof(copy)},
    {"bisect.py", bisect, sizeof(bisect)},
    {"enum.py", enum_, sizeof(enum_)},
    {"collections/__init__.py", collections, sizeof(collections)},
    {"collections/abc.py", collections_abc, sizeof(collections_abc)},
};

mp_import_stat_t mp_import_stat(const char* path) {
  if (strcmp(path, "pyaici") == 0 || strcmp(path, "collections") == 0) return MP_IMPORT_STAT_DIR;
  for (size_t i = 0; i < MP_ARRAY_SIZE(files); i++)
    if (strcmp(files[i].path, path) == 0) return MP_IMPORT_STAT_FILE;
  return MP_IMPORT_STAT_NO_EXIST;
}

mp_lexer_t* mp_lexer_new_from_file(qstr path) {
  for (size_t i = 0; i < MP_ARRAY_SIZE(files); i++)
    if (strcmp(files[i].path, qstr_str(path)) == 0) return mp_lexer_new_from_str_len(path, files[i].text, files[i].size, 0);
  mp_raise_OSError(MP_ENOENT);
}

static mp_obj_t no_open(size_t num, const mp_obj_t* arguments, mp_map_t* named) {
  (void)num, (void)arguments, (void)named;
  mp_raise_msg(&mp_type_OSError, MP_ERROR_TEXT("there are no files here"));
}
MP_DEFINE_CONST_FUN_OBJ_KW(mp_builtin_open_obj, 0, no_open);
