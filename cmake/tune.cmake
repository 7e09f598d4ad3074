# Tuning of schedules, where LAPACKE's header is found (Debian: liblapacke-dev). Without it everything else is built, and
# --tune says what is missing. The library itself is loaded at run time.
find_path(GW_LAPACKE_INCLUDE lapacke.h)
mark_as_advanced(GW_LAPACKE_INCLUDE)

if(GW_LAPACKE_INCLUDE)
  list(FILTER GW_SOURCES EXCLUDE REGEX "/src/schedule/lapack_absent.c$")
else()
  list(FILTER GW_SOURCES EXCLUDE REGEX "/src/schedule/lapack.c$")
  message(STATUS "LAPACKE is missing (Debian: liblapacke-dev): --tune will say so")
endif()
