/* cpu.h - which instructions this CPU has, decided once; GRADWIRE_CPU=plain|avx2|avx512 lowers it for tests. */
#ifndef GW_BASE_CPU_H
#define GW_BASE_CPU_H

typedef enum gw_cpu_level { GW_CPU_PLAIN, GW_CPU_AVX2, GW_CPU_AVX512 } gw_cpu_level;

gw_cpu_level gw_cpu(void);
const char *gw_cpu_name(gw_cpu_level level);
/* For tests: use this level from now on (never above what the CPU has); returns the level in force. */
gw_cpu_level gw_cpu_limit(gw_cpu_level level);

#endif
