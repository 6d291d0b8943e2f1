// `azd up`: small and public, as main.dev.bicepparam. VNET_ENABLED=true closes the network.
using 'main.bicep'

var closed = readEnvironmentVariable('VNET_ENABLED', 'false') == 'true'
var audience = readEnvironmentVariable('AUTH_AUDIENCE', '')

param environmentName = readEnvironmentVariable('AZURE_ENV_NAME', 'weft')
param location = readEnvironmentVariable('AZURE_LOCATION', 'westeurope')
param durableBackend = readEnvironmentVariable('DURABLE_BACKEND', 'storage')
param authAudience = empty(audience) ? 'api://weft' : audience
param principalId = readEnvironmentVariable('AZURE_PRINCIPAL_ID', '')
param principalType = readEnvironmentVariable('AZURE_PRINCIPAL_TYPE', 'User')
param vnetEnabled = closed
param serviceBusSku = closed ? 'Premium' : 'Standard'
