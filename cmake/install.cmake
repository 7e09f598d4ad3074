# What `make install` puts in place, in components that are also the Debian packages (cmake/packages.cmake): the library
# and its modules, what is needed to compile against it, the program, the Python package.
include(CMakePackageConfigHelpers)

# The folders that the loader searches, on the machine that builds.
find_program(GW_LDCONFIG ldconfig PATHS /sbin /usr/sbin)
mark_as_advanced(GW_LDCONFIG)
set(GW_LOADER_FOLDERS /usr/lib /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
if(GW_LDCONFIG AND NOT CMAKE_CROSSCOMPILING)
  execute_process(COMMAND ${GW_LDCONFIG} -N -X -v OUTPUT_VARIABLE lines ERROR_QUIET)
  string(REGEX MATCHALL "(^|\n)/[^:\n]*:" lines "${lines}")
  list(TRANSFORM lines REPLACE "^\n?(/[^:]*):$" "\\1")
  list(APPEND GW_LOADER_FOLDERS ${lines})
endif()

install(TARGETS gradwire RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(TARGETS gradwire_shared EXPORT gradwireTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  NAMELINK_COMPONENT devel)
foreach(module ${GW_TRANSPORT_MODULES})
  install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gradwire COMPONENT ${module})
endforeach()
# The loader finds a new library in its own folders at once, unless the files are only staged.
string(REPLACE ";" "|" folders "${GW_LOADER_FOLDERS}")
install(CODE "
  string(REPLACE \"|\" \";\" folders \"${folders}\")
  set(folder \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}\")
  list(FIND folders \"\${folder}\" place)
  if(\"\$ENV{DESTDIR}\" STREQUAL \"\" AND place GREATER -1)
    execute_process(COMMAND \"${GW_LDCONFIG}\" RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
    if(code)
      message(\"\${folder} has a new library: run ldconfig as root before a program uses it\")
    endif()
  endif()" COMPONENT library)

install(FILES include/gradwire.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT devel)
install(DIRECTORY include/gradwire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT devel)
install(TARGETS gradwire_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT devel)

# Elsewhere a program remembers the folder it was linked against; CMake adds that to its users' programs by itself.
set(GW_RPATH "")
if(NOT CMAKE_INSTALL_FULL_LIBDIR IN_LIST GW_LOADER_FOLDERS)
  set(GW_RPATH " -Wl,-rpath,\${libdir}")
endif()
configure_file(cmake/gradwire.pc.in ${CMAKE_BINARY_DIR}/gradwire.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/gradwire.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT devel)

set_target_properties(gradwire_shared PROPERTIES EXPORT_NAME gradwire)
install(EXPORT gradwireTargets NAMESPACE gradwire:: FILE gradwireConfig.cmake COMPONENT devel
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gradwireConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/gradwireConfigVersion.cmake COMPONENT devel
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)

# The Python package, where Debian's Python looks: dist-packages below /usr, those of one version below /usr/local.
set(GW_PYTHON_SITE "" CACHE STRING "where the Python package is installed, below the prefix")
set(site ${GW_PYTHON_SITE})
if(NOT site)
  find_program(GW_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
  mark_as_advanced(GW_PYTHON)
  set(GW_PYTHON_VERSION 3)
  if(GW_PYTHON AND NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    execute_process(COMMAND ${GW_PYTHON} -c "import sys; print('%d.%d' % sys.version_info[:2], end='')"
      OUTPUT_VARIABLE GW_PYTHON_VERSION)
  endif()
  set(site lib/python${GW_PYTHON_VERSION}/dist-packages)
endif()
install(DIRECTORY python/gradwire DESTINATION ${site} COMPONENT python FILES_MATCHING PATTERN "*.py"
  PATTERN "__pycache__" EXCLUDE)

# Man pages, from the pages of docs/reference: of the calls with the headers, all others with the program. An awk is
# part of every system that builds.
find_program(GW_AWK awk)
mark_as_advanced(GW_AWK)
if(GW_AWK)
  set(GW_MAN ${CMAKE_BINARY_DIR}/man)
  set(reference ${CMAKE_SOURCE_DIR}/docs/reference)
  file(GLOB_RECURSE GW_REFERENCE CONFIGURE_DEPENDS docs/reference/*.md)
  add_custom_command(OUTPUT ${GW_MAN}/made DEPENDS ${GW_REFERENCE} cmake/man.awk VERBATIM
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${GW_MAN}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${GW_MAN}/man1 ${GW_MAN}/man3 ${GW_MAN}/man5 ${GW_MAN}/man7
    COMMAND ${GW_AWK} -v out=${GW_MAN} -v version=${PROJECT_VERSION} -f ${CMAKE_SOURCE_DIR}/cmake/man.awk
      kind=commands ${reference}/commands.md
      kind=calls page=gradwire ${reference}/c/gradwire.md page=gradwire_reducer ${reference}/c/reducer.md
      page=gradwire_coded ${reference}/c/coded.md page=gradwire_trace ${reference}/c/trace.md
      kind=whole section=5 page=gradwire-files ${reference}/files.md
      section=7 page=gradwire-strategy ${reference}/techniques.md
      page=gradwire-environment ${reference}/environment.md
      page=gradwire-errors ${reference}/errors.md
    COMMAND ${CMAKE_COMMAND} -E touch ${GW_MAN}/made)
  add_custom_target(man ALL DEPENDS ${GW_MAN}/made)
  install(DIRECTORY ${GW_MAN}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT devel)
  install(DIRECTORY ${GW_MAN}/man1 ${GW_MAN}/man5 ${GW_MAN}/man7 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
endif()
