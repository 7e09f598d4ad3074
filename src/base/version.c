/* version.c - the library's version, as text. */
#include "gradwire.h"

#define TEXT(number) #number
#define DOTTED(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

int gw_version_number(void) { return GW_VERSION_NUMBER; }
const char *gw_version(void) { return DOTTED(GW_VERSION_MAJOR, GW_VERSION_MINOR, GW_VERSION_PATCH); }
