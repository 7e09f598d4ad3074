# Data sets (src/data), which only the program uses. Gzip files need zlib, PNG sheets libpng. Where one of them is missing,
# NAME_absent.c is built instead of NAME.c, and says so when such a file is opened. -DGW_ZLIB=OFF and -DGW_PNG=OFF do the
# same where the library is there.
#
# Sets GW_DATA_SOURCES, GW_DATA_LIBRARIES (to link) and GW_DATA_COMPLETE (both readers are built).
file(GLOB GW_DATA_SOURCES CONFIGURE_DEPENDS src/data/*.c)
set(GW_DATA_LIBRARIES "")
set(GW_DATA_COMPLETE TRUE)

# gw_data_reader(NAME LIBRARY PACKAGE): src/data/NAME.c needs LIBRARY (ZLIB, PNG), of Debian's PACKAGE.
macro(gw_data_reader name library package)
  option(GW_${library} "read ${name} files of data sets, where their library is found" ON)
  if(GW_${library})
    find_package(${library})
  endif()
  if(GW_${library} AND ${library}_FOUND)
    list(REMOVE_ITEM GW_DATA_SOURCES ${CMAKE_SOURCE_DIR}/src/data/${name}_absent.c)
    list(APPEND GW_DATA_LIBRARIES ${library}::${library})
  else()
    list(REMOVE_ITEM GW_DATA_SOURCES ${CMAKE_SOURCE_DIR}/src/data/${name}.c)
    set(GW_DATA_COMPLETE FALSE)
    message(STATUS "${name} files of data sets are left out (Debian: ${package}), and opening one will say so")
  endif()
endmacro()

gw_data_reader(gzip ZLIB zlib1g-dev)
gw_data_reader(png PNG libpng-dev)

# Removes the tests and fuzzers that write such files themselves, in a build that cannot read them.
macro(gw_filter_data sources)
  if(NOT GW_DATA_COMPLETE)
    list(FILTER ${sources} EXCLUDE REGEX "/(test|fuzz)_data(_real)?\\.c$")
  endif()
endmacro()
