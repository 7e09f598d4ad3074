# The built-in trainer (src/nn, src/optim, src/train), where oneDNN is found (Debian: libdnnl-dev). Without it everything
# else is built, and the commands that train say what is missing.
#
# Sets GW_TRAIN_LIBRARY to the library, or to nothing, and removes from GW_CLI_SOURCES what cannot be built.
find_path(GW_DNNL_INCLUDE oneapi/dnnl/dnnl.h)
find_library(GW_DNNL_LIBRARY dnnl)
mark_as_advanced(GW_DNNL_INCLUDE GW_DNNL_LIBRARY)

file(GLOB GW_TRAIN_COMMANDS CONFIGURE_DEPENDS src/cli/train/*.c)
list(REMOVE_ITEM GW_TRAIN_COMMANDS ${CMAKE_SOURCE_DIR}/src/cli/train/train_absent.c)
foreach(command train explain profile)
  list(APPEND GW_TRAIN_COMMANDS ${CMAKE_SOURCE_DIR}/src/cli/cmd_${command}.c)
endforeach()
if(GW_DNNL_INCLUDE AND GW_DNNL_LIBRARY)
  set(GW_TRAIN_LIBRARY gradwire_train)
  list(REMOVE_ITEM GW_CLI_SOURCES ${CMAKE_SOURCE_DIR}/src/cli/train/train_absent.c)
  file(GLOB_RECURSE GW_TRAIN_SOURCES CONFIGURE_DEPENDS src/nn/*.c src/optim/*.c src/train/*.c)
  add_library(gradwire_train STATIC ${GW_TRAIN_SOURCES})
  target_include_directories(gradwire_train PUBLIC include src ${GW_DNNL_INCLUDE})
  # For vectorised loops; none of these options changes a result.
  target_compile_options(gradwire_train PRIVATE -O3 -fno-math-errno -fno-trapping-math)
  target_link_libraries(gradwire_train PUBLIC ${GW_DNNL_LIBRARY} gomp m)
else()
  set(GW_TRAIN_LIBRARY "")
  list(REMOVE_ITEM GW_CLI_SOURCES ${GW_TRAIN_COMMANDS})
  message(STATUS "oneDNN is missing (Debian: libdnnl-dev): gradwire train and gradwire model will say so")
endif()
