# A small all-reduce takes 0.4 us, of which a tenth was calls from one file to the next. Those on its way are optimised
# together where they are linked into the program or the shared library (gcc); the tests link what each file is alone.
if(CMAKE_C_COMPILER_ID STREQUAL GNU AND NOT GW_SANITIZE)
  set(GW_SMALL_CALL_SOURCES engine/collectives engine/comm engine/progress engine/quick engine/flight base/clock base/reduce
    transport/board transport/board_begin transport/board_carried transport/board_direct transport/board_inline
    transport/board_parts transport/harbour)
  list(TRANSFORM GW_SMALL_CALL_SOURCES REPLACE "(.+)" "src/\\1.c")
  set_source_files_properties(${GW_SMALL_CALL_SOURCES} PROPERTIES COMPILE_OPTIONS "-flto;-ffat-lto-objects")
  target_link_options(gradwire PRIVATE -flto=auto)
  target_link_options(gradwire_shared PRIVATE -flto=auto)
  # Whoever links the static library may have another compiler, which could not read the second form.
  add_custom_command(TARGET gradwire_static POST_BUILD VERBATIM
    COMMAND ${CMAKE_OBJCOPY} --remove-section=.gnu.lto_* --remove-section=.gnu.debuglto_* $<TARGET_FILE:gradwire_static>)
  add_link_options(-fno-lto)
endif()
