// `azd up`: small and public, as main.dev.bicepparam. VNET_ENABLED=true closes the network.
using 'main.bicep'

var closed = readEnvironmentVariable('VNET_ENABLED', 'false') == 'true'

param environmentName = readEnvironmentVariable('AZURE_ENV_NAME', 'weft')
param location = readEnvironmentVariable('AZURE_LOCATION', 'westeurope')
param durableBackend = readEnvironmentVariable('DURABLE_BACKEND', 'storage')
param authAudience = readEnvironmentVariable('AUTH_AUDIENCE', 'api://weft')
param principalId = readEnvironmentVariable('AZURE_PRINCIPAL_ID', '')
param vnetEnabled = closed
param serviceBusSku = closed ? 'Premium' : 'Standard'
