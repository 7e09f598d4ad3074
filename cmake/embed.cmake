# cmake -DOUT=FILE.c -DDIR=src/insight/page -P embed.cmake: the report page's files as strings of a C file.
set(text "/* Made from ${DIR} by cmake/embed.cmake. */\n#include \"insight/page_files.h\"\n")
foreach(kind html css js)
  file(READ "${DIR}/page.${kind}" bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "((0x..,){24})" "\\1\n" bytes "${bytes}")
  string(APPEND text "\nconst char gw_page_${kind}[] = {\n${bytes}0};\n")
endforeach()
file(WRITE "${OUT}" "${text}")
