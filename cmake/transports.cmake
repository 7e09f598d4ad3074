# Transports that need a library. src/transport/NAME/NAME.cmake says what the folder needs; where that is missing,
# NAME_absent.c is built instead of all other files of the folder, and says what is missing.
# -DGW_NAME=OFF does the same where the library is there.
#
# Removes from GW_SOURCES what cannot be built. Sets GW_TRANSPORTS_ABSENT (names), GW_TRANSPORT_LIBRARIES (to link),
# GW_TRANSPORT_MODULES (targets that are loaded at run time), GW_PRIVATE_LIBRARIES (of libgradwire.a, for pkg-config).
set(GW_TRANSPORTS_ABSENT "")
set(GW_TRANSPORT_LIBRARIES "")
set(GW_TRANSPORT_MODULES "")
set(GW_PRIVATE_LIBRARIES "-lcrypto -lpthread -lm")

# gw_transport_needs(NAME PACKAGE HEADER [LIBRARY]): Debian's PACKAGE has HEADER. Without LIBRARY nothing is linked: the
# transport loads it at run time.
macro(gw_transport_needs name package header)
  string(TOUPPER ${name} NAME)
  option(GW_${NAME} "build transport=${name} where its library is found" ON)
  find_path(GW_${NAME}_INCLUDE ${header})
  mark_as_advanced(GW_${NAME}_INCLUDE)
  set(GW_${NAME}_FOUND ${GW_${NAME}_INCLUDE})
  if(${ARGC} GREATER 3)
    find_library(GW_${NAME}_LIBRARY ${ARGV3})
    mark_as_advanced(GW_${NAME}_LIBRARY)
    if(NOT GW_${NAME}_LIBRARY)
      set(GW_${NAME}_FOUND "")
    endif()
  endif()
  if(GW_${NAME} AND GW_${NAME}_FOUND)
    list(REMOVE_ITEM GW_SOURCES ${CMAKE_SOURCE_DIR}/src/transport/${name}/${name}_absent.c)
    include_directories(SYSTEM ${GW_${NAME}_INCLUDE})
    if(${ARGC} GREATER 3)
      list(APPEND GW_TRANSPORT_LIBRARIES ${GW_${NAME}_LIBRARY})
      string(APPEND GW_PRIVATE_LIBRARIES " -l${ARGV3}")
    endif()
  else()
    list(FILTER GW_SOURCES EXCLUDE REGEX "/src/transport/${name}/")
    list(APPEND GW_SOURCES ${CMAKE_SOURCE_DIR}/src/transport/${name}/${name}_absent.c)
    list(APPEND GW_TRANSPORTS_ABSENT ${name})
    message(STATUS "transport=${name} is left out (Debian: ${package}), and will say so")
  endif()
endmacro()

# Removes tests, benchmarks and fuzzers of transports that are left out: test_NAME.c, test_NAME_more.c.
macro(gw_filter_transports sources)
  foreach(name ${GW_TRANSPORTS_ABSENT})
    list(FILTER ${sources} EXCLUDE REGEX "/[a-z]+_${name}(_[a-z0-9_]*)?\\.c$")
  endforeach()
endmacro()

file(GLOB rules CONFIGURE_DEPENDS src/transport/*/*.cmake)
foreach(rule ${rules})
  include(${rule})
endforeach()
