# What distributions expect of libraries and programs: protected stacks, checked string functions, relocations that are
# read-only once all are bound at start, position-independent programs, no executable stack. tests/install.sh reads these
# from the installed files.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
add_compile_options(-fstack-protector-strong)
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)

# The C library checks strings only in optimised code, and sanitizers know its plain functions better.
set(optimised FALSE)
if(CMAKE_BUILD_TYPE MATCHES "^(Release|MinSizeRel)$")
  set(optimised TRUE)
elseif(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND GW_OPTIMISE MATCHES "-O[1-3s]")
  set(optimised TRUE)
endif()
if(optimised AND NOT GW_SANITIZE AND NOT GW_FUZZ)
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
