# Tuning of schedules, where LAPACKE's header is there: Debian's liblapacke-dev. Without it everything else is built, and
# asking for it says what is missing. The library itself is loaded when it is asked for.
find_path(GW_LAPACKE_INCLUDE lapacke.h)
mark_as_advanced(GW_LAPACKE_INCLUDE)

if(GW_LAPACKE_INCLUDE)
  list(FILTER GW_SOURCES EXCLUDE REGEX "/src/schedule/without_lapack.c$")
else()
  list(FILTER GW_SOURCES EXCLUDE REGEX "/src/schedule/lapack.c$")
  message(STATUS "LAPACKE is missing (Debian: liblapacke-dev): --tune will say so")
endif()
